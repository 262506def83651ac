"""The pages of keys: an operator makes one, copies it once, rotates and revokes it."""

from pathlib import Path

from tests.console.browsing import Browser, Seen, key, served

ON = {"enabled": True}
KEYS = (key("root"), key("ann", "admin", "context"), key("bob", "context"), key("eve", tenant="other"))


async def made(browser: Browser, **fields: str | list[str]) -> tuple[Seen, str]:
    """Fill in the form; return the page that shows the key, and its text."""
    form = await browser.get("/console/keys/new")
    page = await browser.submit(form, "Make the key", {"name": "ci", "scopes": ["context"], **fields})
    assert page.status == 200 and not page.problem, page.text
    (field,) = [one for one in page.root.all("input") if one.attributes.get("id") == "key"]
    return page, str(field.attributes["value"])


async def test_a_key_is_made_and_shown_once(tmp_path: Path) -> None:
    """It opens what it was made for; neither the list nor its own page has it, and no cache keeps it."""
    async with served(tmp_path, *KEYS, runtime_keys=ON) as browser:
        ann = await browser.signed_in("ann")
        page, text = await made(ann, expires="30d", networks="127.0.0.1\n10.0.0.0/8", metadata="team=core\n")
        assert "shown this once" in page.main and page.headers["Cache-Control"] == "no-store"
        api = ann.api()
        (one,) = [each for each in (await api.get("/context/keys")).json["data"] if each["origin"] == "store"]
        assert (one["scopes"], one["networks"], one["metadata"]) == (
            ["context"],
            ["127.0.0.1/32", "10.0.0.0/8"],
            {"team": "core"},
        )
        assert one["expires"] is not None and one["created_by"] == "ann" and one["tenant"] == "team"
        listed, shown = await ann.get("/console/keys"), await ann.get(f"/console/keys/{one['id']}")
        assert "ci" in listed.main and one["hint"] in listed.main and "10.0.0.0/8" in shown.main
        assert text not in listed.html and text not in shown.html
        (line,) = [
            each for each in (await (await browser.signed_in("root")).api().get("/context/audit")).json["data"]
            if each["event"] == "key_created"
        ]  # fmt: skip
        assert (line["caller"], line["by"], line["via"]) == ("ci", "ann", "console")


async def test_invalid_key_form_keeps_its_input(tmp_path: Path) -> None:
    """The field is marked, and nothing is made."""
    async with served(tmp_path, *KEYS, runtime_keys=ON) as browser:
        ann = await browser.signed_in("ann")
        form = await ann.get("/console/keys/new")
        for fields, status in (
            ({"name": "x", "expires": "soon"}, 422),
            ({"name": "x", "networks": "office"}, 400),
            ({"name": "root"}, 409),
        ):
            page = await ann.submit(form, "Make the key", {"scopes": ["admin"], **fields})
            assert page.status == status and page.problem, page.text
            (name,) = [one for one in page.root.all("input") if one.attributes.get("id") == "name"]
            assert name.attributes["value"] == fields["name"]
            boxes = page.root.all("input", name="scopes")
            assert [one.attributes["value"] for one in boxes if "checked" in one.attributes] == ["admin"]
        assert "store" not in str((await ann.api().get("/context/keys")).json)


async def test_key_form_offers_only_the_scopes_of_the_user(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS, runtime_keys=ON) as browser:
        form = await (await browser.signed_in("ann")).get("/console/keys/new")
        offered = [one.attributes["value"] for one in form.root.all("input") if one.attributes.get("name") == "scopes"]
        assert offered == ["context", "admin"]


async def test_a_key_is_rotated_and_revoked(tmp_path: Path) -> None:
    """Each from its own page; the new text is shown once as well."""
    async with served(tmp_path, *KEYS, runtime_keys=ON) as browser:
        ann = await browser.signed_in("ann")
        _, old = await made(ann)
        listed = await ann.get("/console/keys")
        (path,) = [link for link in listed.links if link.startswith("/console/keys/key_")]
        page = await ann.submit(await ann.get(path), "Make a new key", {"grace": "0"})
        (field,) = [one for one in page.root.all("input") if one.attributes.get("id") == "key"]
        assert field.attributes["value"] != old and "stays valid for a while" in page.main
        again = await ann.get(path)
        assert "expired" in again.main and "Make a new key" not in again.main
        newest = next(link for link in (await ann.get("/console/keys")).links if link.startswith("/console/keys/key_"))
        after = await ann.submit(await ann.get(newest), "Revoke this key")
        assert "opens nothing any more" in after.text and "revoked" in after.main


async def test_only_operators_of_the_tenant_see_keys(tmp_path: Path) -> None:
    async with served(tmp_path, *KEYS, runtime_keys=ON) as browser:
        ann, bob, eve = [await browser.signed_in(name) for name in ("ann", "bob", "eve")]
        await made(ann)
        assert (await bob.get("/console/keys")).status == 403
        assert "/console/keys" not in (await bob.get("/console")).links
        assert "ci" not in (await eve.get("/console/keys")).main


async def test_keys_page_explains_how_to_enable_runtime_keys(tmp_path: Path) -> None:
    """The configured ones are listed."""
    async with served(tmp_path, *KEYS) as browser:
        ann = await browser.signed_in("ann")
        assert "configuration" in (await ann.get("/console/keys")).main
        form = await ann.get("/console/keys/new")
        page = await ann.submit(form, "Make the key", {"name": "x", "scopes": ["admin"]})
        assert page.status == 409 and "runtime_keys" in page.problem


async def test_revoking_a_key_ends_its_sessions(tmp_path: Path) -> None:
    """One that was made here signs in, and its revocation signs it out."""
    async with served(tmp_path, *KEYS, runtime_keys=ON) as browser:
        ann = await browser.signed_in("ann")
        _, text = await made(ann)
        other = browser.another()
        form = await other.get("/console/sign-in")
        signed = await other.submit(form, "Sign in", {"key": text}, follow=False)
        assert signed.status == 303 and (await other.get("/console")).status == 200
        (path,) = [link for link in (await ann.get("/console/keys")).links if link.startswith("/console/keys/key_")]
        await ann.submit(await ann.get(path), "Revoke this key")
        assert "/sign-in" in (await other.get("/console", follow=False)).location
