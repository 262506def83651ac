"use strict";
// The console of Twolane: times in the reader's zone, the keyboard, news for open pages. Every page works without it.

(() => {
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const title = document.title.replace(/^\(\d+\) /, "");

  function showTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]:not([data-shown])")) {
      time.title = time.textContent;
      time.textContent = zone.format(new Date(time.dateTime));
      time.dataset.shown = "";
    }
  }

  // A form with times is in UTC. Here its reader enters those of their zone, and it sends UTC all the same.
  function showZone() {
    for (const field of document.querySelectorAll("input[data-utc]")) {
      const label = document.querySelector(`label[for="${field.id}"]`);
      label.textContent = label.dataset.local;
      if (field.value) {
        const at = new Date(`${field.value}Z`);
        field.value = new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
      }
      field.form.addEventListener("formdata", ({ formData }) => {
        if (field.value) formData.set(field.name, new Date(field.value).toISOString().slice(0, 16));
      });
    }
  }

  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const relative = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "always" });

  function showLeft() {
    for (const place of document.querySelectorAll("[data-until]")) {
      const left = Number(place.dataset.until) - Date.now() / 1000;
      const [size, unit] = units.find(([limit]) => Math.abs(left) >= 2 * limit) || units[3];
      let note = place.querySelector(".relative");
      if (!note) {
        note = place.appendChild(document.createElement("span"));
        note.className = "relative";
      }
      note.textContent = ` (${relative.format(Math.round(left / size), unit)})`;
      place.classList.toggle("soon", left < 120);
      if (left < 0) endCard(place.closest("[data-card]"));
    }
  }

  // News: cards come and go by themselves; the number stands in the title and in the navigation.

  function showCount(count) {
    document.title = count ? `(${count}) ${title}` : title;
    const place = document.getElementById("pending");
    if (place) {
      place.textContent = count;
      place.hidden = !count;
      place.dataset.count = count;
    }
    const cards = document.querySelectorAll("#cards [data-card]").length;
    const empty = document.querySelector("[data-empty]");
    const behind = document.querySelector("[data-behind]");
    if (empty) empty.hidden = cards > 0;
    if (behind && empty) behind.hidden = !(count > cards && !document.querySelector(".more"));
  }

  // A call that was decided elsewhere, or whose time is over, is not decided here.
  function endCard(card) {
    if (!card || "ended" in card.dataset) return;
    card.dataset.ended = "";
    for (const control of card.querySelectorAll("[name=decision]")) control.disabled = true;
    const note = card.querySelector("[data-over]");
    if (note) note.hidden = false;
  }

  // A page without its connection says so, and keeps its decisions: a form that is sent nowhere loses the page.
  let lostSince = null;
  function showConnection(isLost) {
    if (isLost === (lostSince !== null)) return;
    lostSince = isLost ? new Date() : null;
    const note = document.querySelector("[data-lost]");
    note.hidden = !isLost;
    note.textContent = isLost ? note.dataset.lost.replace("{0}", clock.format(lostSince)) : "";
  }
  document.addEventListener("htmx:sseError", () => showConnection(true));
  document.addEventListener("htmx:sseOpen", () => showConnection(false));
  document.addEventListener("submit", (event) => {
    if (lostSince !== null && event.submitter?.name === "decision") event.preventDefault();
  }, true);

  function notify(card) {
    if (!("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
    const note = new Notification(card.querySelector("h2").textContent, {
      body: card.querySelector(".why").textContent.trim().replace(/\s+/g, " "),
      tag: card.id,
    });
    note.onclick = () => { window.focus(); location.href = card.dataset.href; };
  }

  function offerNotices() {
    const button = document.querySelector("[data-notify]");
    if (!button || !("Notification" in window)) return;
    button.hidden = Notification.permission !== "default";
    button.addEventListener("click", async () => {
      button.hidden = (await Notification.requestPermission()) !== "default";
    });
  }

  // A short tone for a new call, if the reader wants one. A page makes no sound before its reader has pressed something.

  const sounding = "twolane-sound";
  let audio = null;
  let silentUntil = 0; // many calls that come at once are one tone

  function wakeSound() {
    if (localStorage.getItem(sounding)) audio ??= new AudioContext();
  }

  function playTone() {
    if (!audio || !localStorage.getItem(sounding) || audio.currentTime < silentUntil) return;
    const [tone, volume, begin] = [audio.createOscillator(), audio.createGain(), audio.currentTime];
    silentUntil = begin + 1;
    tone.frequency.value = 660;
    volume.gain.setValueAtTime(0.15, begin);
    volume.gain.exponentialRampToValueAtTime(0.001, begin + 0.3);
    tone.connect(volume).connect(audio.destination);
    tone.start(begin);
    tone.stop(begin + 0.3);
  }

  function offerSound() {
    const button = document.querySelector("[data-sound]");
    if (!button) return;
    button.hidden = false;
    const show = () => button.setAttribute("aria-pressed", Boolean(localStorage.getItem(sounding)));
    show();
    button.addEventListener("click", () => {
      if (localStorage.getItem(sounding)) localStorage.removeItem(sounding);
      else localStorage.setItem(sounding, "1");
      show();
      wakeSound();
      playTone();
    });
    for (const name of ["pointerdown", "keydown"]) document.addEventListener(name, wakeSound);
  }

  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const { type, data } = event.detail;
    if (type !== "approval") return;
    const id = new DOMParser().parseFromString(data, "text/html").querySelector("[data-card]").id;
    if (document.getElementById(id)) event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    showTimes(event.target);
    showLeft();
    lookAtAll();
  });
  document.addEventListener("htmx:sseMessage", (event) => {
    if (event.detail.type !== "approval") return;
    const card = document.querySelector("#cards > [data-card]:last-child");
    if (!card) return;
    card.classList.add("fresh");
    playTone();
    notify(card);
  });
  const heard = new WeakSet();
  document.addEventListener("htmx:sseOpen", (event) => {
    const source = event.detail.source;
    if (heard.has(source)) return;
    heard.add(source);
    const behind = document.getElementById("cards")?.matches("[data-narrowed]") && document.querySelector("[data-behind]");
    source.addEventListener("count", (message) => showCount(Number(message.data)));
    source.addEventListener("approval", () => {
      if (!behind) return;
      behind.hidden = false;
      playTone();
    });
    source.addEventListener("resolved", (message) => {
      if (behind && !document.getElementById(message.data)) behind.hidden = false;
      const card = document.getElementById(message.data);
      if (card && card.matches("#cards > *")) takeAway(card);
      else endCard(document.querySelector(`[data-single][data-call^="${message.data} "]`));
    });
  });

  // Nothing moves under a pointer that is about to press: the place of a card stays empty until the pointer has left.
  function takeAway(card) {
    const place = card.parentElement;
    if (!place.matches(":hover")) return card.remove();
    const empty = document.createElement("div");
    empty.className = "card gone";
    empty.style.height = `${card.offsetHeight}px`;
    card.replaceWith(empty);
    place.addEventListener("pointerleave", () => empty.remove(), { once: true });
  }

  // The second click of a double click was meant for what was there before: the page that came with the first has
  // another call at the same place.
  document.addEventListener("click", (event) => {
    if (event.detail > 1 && event.target.closest("[name=decision]")) event.preventDefault();
  }, true);

  // Nothing is approved whose end was out of sight: until each value of a call was drawn to its end before the reader,
  // Approve is off, and words beside it count the lines below. What counts is the page as it is drawn.

  const seen = new Map(); // which share of a value was in view, from its top, by call and place in it

  function valuesOf(card) {
    return [...card.querySelectorAll(".exact.whole")].map((value, place) => ({ value, key: `${card.dataset.call} ${place}` }));
  }

  function seenOf({ value, key }) {
    const { top, bottom, left, height } = value.getBoundingClientRect();
    const { offsetTop, height: viewHeight } = window.visualViewport;
    const lowest = Math.min(bottom, offsetTop + viewHeight);
    const before = seen.get(key) ?? 0;
    if (before === 1 || lowest <= Math.max(top, 0)) return before;
    const drawn = document.elementFromPoint(left + 4, lowest - 3); // not what is in front of it
    const share = lowest > bottom - 2 ? 1 : (lowest - top) / height; // places of a page are not whole pixels
    if (value.contains(drawn)) seen.set(key, Math.max(before, share));
    return seen.get(key) ?? 0;
  }

  function lookAt(card) {
    const notes = card.querySelectorAll("[data-below]");
    if (!notes.length) return;
    let [lines, below] = [0, 0];
    for (const one of valuesOf(card)) {
      const drawnLines = Math.max(one.value.clientHeight / parseFloat(getComputedStyle(one.value).lineHeight), 1);
      lines += Math.round(drawnLines);
      below += Math.ceil((1 - seenOf(one)) * drawnLines);
    }
    for (const control of card.querySelectorAll("[name=decision][value=approve]")) {
      control.disabled = below > 0 || "ended" in card.dataset;
    }
    for (const note of notes) {
      note.hidden = below === 0;
      note.firstElementChild.textContent = note.dataset.below.replace("{0}", lines).replace("{1}", below);
    }
  }

  function lookAtAll() {
    cards().forEach(lookAt);
  }

  let isLooking = false;
  function lookSoon() {
    if (isLooking) return;
    isLooking = true;
    requestAnimationFrame(() => { // never in a tab that is not shown
      isLooking = false;
      lookAtAll();
    });
  }

  function readFurther(card) {
    const unread = valuesOf(card).find((one) => seenOf(one) < 1);
    if (!unread) return;
    const { top, height } = unread.value.getBoundingClientRect();
    window.scrollBy(0, top + seenOf(unread) * height - window.innerHeight / 4);
  }

  function watchReading() {
    for (const source of [window, window.visualViewport]) {
      for (const name of ["scroll", "resize"]) source.addEventListener(name, lookSoon, { passive: true });
    }
    new ResizeObserver(lookSoon).observe(document.body);
    document.addEventListener("click", (event) => {
      if (event.target.closest("[data-further]")) readFurther(event.target.closest("[data-card]"));
    });
    lookAtAll();
  }

  // Several calls: the bar says how many are selected. What they are stands on the next page, before a decision.

  function countSelected() {
    const place = document.querySelector("[data-selected]");
    if (!place) return;
    const boxes = [...document.querySelectorAll("input[form=batch]")];
    const count = boxes.filter((box) => box.checked).length;
    place.textContent = place.dataset.selected.replace("{0}", count);
    const all = document.querySelector("[data-select-all] input");
    if (!all) return;
    all.checked = count > 0 && count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  }

  function offerSelection() {
    const all = document.querySelector("[data-select-all]");
    if (all) {
      all.hidden = false;
      all.addEventListener("change", (event) => {
        for (const box of document.querySelectorAll("input[form=batch]")) box.checked = event.target.checked;
      });
    }
    document.addEventListener("change", countSelected);
    window.addEventListener("pageshow", countSelected); // a browser that goes back has the boxes as they were
  }

  // The playground: both answers as they stream, each a line of JSON at a time.

  async function answer(lane, form) {
    const place = lane.querySelector("[data-answer]");
    const facts = lane.querySelector("[data-facts]");
    place.textContent = facts.textContent = "";
    place.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(lane.dataset.lane, { method: "POST", body: new URLSearchParams(form) });
      if (!response.ok) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        facts.textContent = page.querySelector("main p")?.textContent ?? response.status;
        return;
      }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines.map(JSON.parse)) {
          if ("text" in line) place.append(line.text);
          if ("end" in line) facts.innerHTML = line.end;
        }
      }
    } catch (error) {
      facts.textContent = String(error);
    } finally {
      place.setAttribute("aria-busy", "false");
    }
  }

  document.querySelector("[data-playground]")?.addEventListener("submit", (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const explanation = document.querySelector("[data-explanation]");
    for (const lane of document.querySelectorAll("[data-lane]")) answer(lane, form);
    htmx.ajax("POST", explanation.dataset.explanation, {
      target: explanation, swap: "innerHTML", values: Object.fromEntries(form),
    });
  });

  // A part of a page that is loaded anew keeps what its reader has opened and entered.

  const kept = new Map();
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!event.detail.target.matches("[data-keep]")) return;
    kept.clear();
    for (const one of event.detail.target.querySelectorAll("details[id]")) kept.set(one.id, one.open);
    for (const one of event.detail.target.querySelectorAll("input[id], textarea[id]")) {
      kept.set(one.id, one.type === "checkbox" ? one.checked : one.value);
    }
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const [id, value] of kept) {
      const one = document.getElementById(id);
      if (one) one[one.matches("details") ? "open" : one.type === "checkbox" ? "checked" : "value"] = value;
    }
    kept.clear();
  });

  // The address of a call or a run, for a colleague. Browsers give the clipboard to https and to this machine only.

  function offerCopies() {
    for (const button of document.querySelectorAll("[data-copy]")) {
      button.hidden = !navigator.clipboard;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(new URL(button.dataset.copy, location.href).href);
        button.textContent = button.dataset.copied;
      });
    }
  }

  // The keyboard.

  const cards = () => [...document.querySelectorAll("[data-card]")];
  let current = null;

  function choose(card) {
    if (!card) return;
    for (const other of cards()) other.classList.toggle("current", other === card);
    current = card;
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  }

  function move(step) {
    const all = cards();
    const at = all.indexOf(current);
    choose(all[at < 0 ? 0 : Math.min(Math.max(at + step, 0), all.length - 1)]);
  }

  function press(action) {
    // Only what the reader has chosen, or has a page of its own: another card may have come in its place just now.
    const card = current?.isConnected ? current : document.querySelector("[data-card][data-single]");
    if (!card) return choose(cards()[0]);
    const edit = card.querySelector("[data-edit]");
    if (action === "approve" && edit?.open && [...edit.querySelectorAll("input, textarea, select")].some(isChanged)) {
      edit.querySelector("[name=decision]").focus(); // the call as it was is not what the reader has before them
    } else if (action === "edit" && edit) {
      edit.open = true;
      edit.querySelector("input:not([type=hidden]), textarea, select")?.focus();
    } else if (action === "select") {
      card.querySelector("input[type=checkbox]")?.click();
    } else {
      lookAt(card); // as it is drawn now
      const control = card.querySelector(`[data-action=${action}]`);
      if (control?.disabled) readFurther(card);
      else control?.click();
    }
  }

  function isChanged(control) {
    if (!control.matches("select")) return control.value !== control.defaultValue;
    const first = [...control.options].findIndex((option) => option.defaultSelected);
    return control.selectedIndex !== Math.max(first, 0);
  }

  function showHelp() {
    document.getElementById("help")?.showModal();
  }

  const keys = {
    j: () => move(1),
    k: () => move(-1),
    a: () => press("approve"),
    r: () => press("reject"),
    e: () => press("edit"),
    x: () => press("select"),
    "?": showHelp,
  };

  // Some readers want no such keys (WCAG 2.1.4): speech becomes keys, and a key held down repeats.

  const off = "twolane-keys-off";
  const box = document.querySelector("[data-keys]");
  if (box) {
    box.checked = !localStorage.getItem(off);
    box.addEventListener("change", () => {
      if (box.checked) localStorage.removeItem(off);
      else localStorage.setItem(off, "1");
    });
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    if ((event.repeat && !"jk".includes(event.key)) || localStorage.getItem(off)) return;
    event.preventDefault();
    keys[event.key]();
  });

  for (const button of document.querySelectorAll("[data-help]")) {
    button.hidden = false;
    button.addEventListener("click", showHelp);
  }
  document.querySelector(".top [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  showTimes(document);
  showZone();
  showLeft();
  setInterval(showLeft, 1000);
  offerNotices();
  offerSound();
  offerSelection();
  offerCopies();
  watchReading();
  document.documentElement.dataset.ready = ""; // from here on, Approve is held by what was read
})();
