"""The commands that run by themselves, under each profile; every line of the case files holds."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.contracts.storage.store import Json
from gateway.plugins.assessors.command import PLUGIN, CommandAssessor, Config, Profile

CASES = [json.loads(line) for line in (Path(__file__).parents[3] / "data" / "command.jsonl").read_text().splitlines()]


def assessor(profile: Profile = "standard") -> CommandAssessor:
    return CommandAssessor(profile)


def decision(command: object, profile: Profile = "standard") -> str:
    return assessor(profile).assess({"command": command}).decision


def expected(case: Json, profile: Profile) -> str:
    """Return the expected verdict of a case under a profile.

    core holds under all; extended is auto only with the longer list, which `literal` does not have; what hardening
    marks asks under `hardened` alone, with one exception: a variable that is not on the short list always asks.
    """
    if case["tier"] == "extended" and profile == "literal":
        return "confirm"
    if case["tier"] == "hardening" and case["expect"] == "confirm" and profile != "hardened":
        always = case["why"] == "prints a secret" or (profile == "literal" and "<" in case["arguments"]["command"])
        return "confirm" if always else "auto"
    return str(case["expect"])


@pytest.mark.parametrize("profile", ["literal", "standard", "hardened"])
def test_command_corpus_gets_the_expected_verdicts(profile: Profile) -> None:
    """The verdict is the case's; auto is the whitelist's, confirm the default's, and it says why."""
    judge = assessor(profile)
    judged = [(case, judge.assess(case["arguments"])) for case in CASES if not case.get("ambiguous")]
    assert len(judged) > 300
    assert [(case, verdict) for case, verdict in judged if verdict.decision != expected(case, profile)] == []
    for case, verdict in judged:
        assert verdict.basis == ("whitelist" if verdict.decision == "auto" else "default"), case
        assert verdict.rule.startswith("command.") and verdict.reason, case


def test_command_whitelist_fallback() -> None:
    """Requirement: a command on the list runs, every other one asks."""
    assert [decision(c) for c in ("ls", "cat a", "pwd", "echo a", "grep a b")] == ["auto"] * 5
    assert [decision(c) for c in ("init 0", "reboot", "./custom.sh", "rm a")] == ["confirm"] * 4


@pytest.mark.parametrize(
    "command",
    [
        "ls -lah --time-style=long-iso",
        "ls {src,tests}/*.py",
        "ls -la | grep -v '^total' | sort -k5 -n -r | head -n 3",
        "cat a.txt b.txt | tr a-z A-Z | cut -d' ' -f2- | sort | uniq -c | sort -rn",
        "grep -rnE \"foo|bar$\" --include='*.{ts,tsx}' src 2>/dev/null | head -50",
        'grep -n "^def \\$" app.py || echo "none"',
        "grep -5 TODO notes.md",
        "find . -name *.py -not -path './.venv/*'",
        "find ~ -maxdepth 1 -type f -size +10M -mtime -7",
        "find src -type f \\( -name '*.c' -or -name '*.h' \\) -print0",
        "find . -newermt 2024-01-01 ! -empty",
        "head -c1k data.bin | xxd",
        "tail -n +5 f | head -1",
        "command -v git >/dev/null 2>&1 && echo yes || echo no",
        "ls\npwd",
        "# what is here\nls -la\n\ncat README.md | head",
        'for f in *.py; do echo $f; wc -l "$f"; done | sort',
        "if [ -d src ]; then ls src; elif test -f a; then cat a; else pwd; fi",
        "find . -name '*.py' -exec grep -l foo {} +",
        "find . -type f -exec cat {} \\;",
        "find . -name '*.py' | xargs -n1 basename",
        "ls | xargs -I{} echo 'a {}'",
        "env | sort",
        "printenv PATH",
        "printf '%s\\n' hello",
        "awk -F, 'NR>1 {s+=$3} END {print s}' data.csv",
        "awk '{for (k in a) n++; print n}' f",
        "tar -tzf dist.tar.gz | head",
        "unzip -l app.zip",
        "lsof -i :8080",
        "ss -tlnp",
        "python3 --version\nnode -v && npm -v; go version; cargo --version",
        "pip show requests",
        "whereis python3",
        "sed 's/a/b/g' f | head",
        "sed '/^#/d' f",
        "[ -d src ] && ls src",
        'test -d "$HOME/project" && echo there',
        "sed -n '10,20p' f",
        "sed -n '/^start/,/^end/p' f",
        "date -u +%Y-%m-%dT%H:%M:%SZ",
        "ps aux --sort=-%mem | head",
        "ps -eo pid,cmd",
        "du -sh * | sort -h",
        "df -h .",
        "free -h; nproc; uptime -p",
        "diff -u a b",
        "jq -r '.items[] | .name' data.json",
        "rg -n --glob '*.py' 'import os' src",
        "sha256sum *.tar.gz",
        "cd src && ls",
        "ls -la # what is here",
        "ls;",
        "echo 'line one\nline two'",
        'echo "⚠️ 完成　了 👍"',
        "ls ${HOME}/x",
    ],
)
def test_common_reading_commands_run_without_approval(command: str) -> None:
    """Everyday commands that look around ask nobody."""
    verdict = assessor().assess({"command": command})
    assert verdict.decision == "auto", verdict


@pytest.mark.parametrize(
    "command",
    [
        # options that write or run, in every spelling
        "sort -oout in", "sort -ro out in", "sort in -o out", "sort -k1,1 -no out in", "sort --outp=x in",
        "sort *.txt", "sort {-o,x} in", "sort -T/tmp in", "sort --files0-from=x",
        "uniq a b", "uniq -- a b", "uniq -f 1 a b", "uniq a *", "uniq $PWD/x y",
        "tree -o out", "tree -R -L 1 -H x", "date -s 12:00", "date --set=12:00", "date -us 12:00", "date '$(x)'",
        "hostname -F f", "file -z f", "file *", "file -Z f", "xxd -r a b", "xxd a -a", "xxd -ps a b", "xxd a -- b",
        "tree -P-o x out", "tree -Lo out", "tree --sort -o out", "tree -aLo 2 out", "rg --pre=./x a", "rg -z a",
        "rg *",
        "rg --hostname-bin=./x a", "diff -l a b", "diff *", "jq -n env", "jq -n '$ENV.KEY'", "jq -f prog f",
        "jq -L . 'import \"a\" as a; 1'", "wc --files0-from=x", "ps auxe", "ps -o environ", "iconv -oout in",
        # find
        "find . -delete", "find . '-delete'", "find . \\-delete", "find . -execdir x {} +", "find . -name x -delete",
        "find -files0-from x", "find . -name *", "find . -name x{,-delete}", "find . $SHELL-delete",
        "find [-.]delete", "find $PWD", "find . -exec rm {} +",
        "find . -exec sort {} +", "find . -exec find {} \\;", "find . -exec {} \\;", "find . -exec cat *",
        # variables: empty, split, or anything
        "sort $SHELL-o out b", "sed -n p $SHELL-e'1e x' a", 'rg -e"$USER" -g --pre=./evil', 'sort -k"$USER" -k -oout',
        "cd 'a -exec touch P ;' && find $PWD", "sort $HOME/x", 'sort "$HOME"', "sort -- $USER", "uniq \"$PWD\"",
        "{a['$(x)']}>/dev/null", "{PATH}>/dev/null ls", "ls {x}>/dev/null", 'cat <"$USER/dev/tcp/a/1"',
        "cat <$HOME/x",
        "ls $OLDPWD", "ls $IFS", "ls $-", "ls $_", "ls ${HOME#x}", "ls ~+/x", "ls ~-", "for f in *; do sort $f; done",
        "for f in *; do sort \"$f\"; done", "for f in a; do rm $f; done", "for PATH in .; do ls; done",
        "if rm a; then ls; fi",
        "ls | while read f; do cat $f; done", "ls &>/dev/null",
        # programs
        "python3 -V x", "python3 -m http.server", "npm ls", "node -e 1", "node -v -e 1", "pip install x",
        "pip list --outdated",
        "go env -w A=b", "cargo --version build", "make", "make --version -f x", "bash --version -c x",
        "whereis -f *x; rm a",
        "awk '{print > \"out\"}' f", "awk '{print | \"sh\"}' f", "awk 'BEGIN{system(\"x\")}'", "awk -f prog f",
        "awk -i inplace 1 f",
        "awk 'BEGIN{while(1);}'", "awk 'BEGIN{for(;;);}'", "awk '{\"x\" | getline}' f", "awk '@load \"x\"' f",
        "awk $USER f",
        "awk 1 /inet/tcp/0/a/1", "awk 'function f() {f()} {f()}' f", "awk 1 -v", "awk --file=x", "gawk -d 1 f",
        "printf -v x y", "printf $USER", "printf %999999999d 1", "tar xf a", "tar -tf host:a",
        "tar tf a --to-command=x",
        "tar -tIf x a", "tar -t", "unzip a.zip", "unzip -l a -d x", "unzip -ol a", "lsof", "lsof -i",
        "lsof -r 1 -i :80", "ss -K",
        "ss -D x", "xargs ls", "ls | xargs rm", "ls | xargs -I ls ls", "ls | xargs -I{} {} x",
        "ls | xargs sort",
        "xargs -a -x echo", "xargs -a * echo",
        "ls | xargs -P0 echo", "ls | xargs sh -c x", "env ls", "env -i", "env A=b",
        "printenv -0 x; rm a",
        "sed 's/a/b/w out' f", "sed 's/a/b/e' f", "sed -i s/a/b/ f", "sed s/a/b/ *", "find . -name [-]delete",
        "find . $USER",
        "find . -printf", "find . -D exec", "find -* -name x", "find . -type f -fls x -print",
        # sed, test, command
        "sed -n 5p *.txt", "sed -n 'p;w out' f", "sed -n 's/a/b/e' f", "sed -i -n 5p f", "sed -ni 5p f",
        "sed -n '/a/w out' f", "sed -n '/a/,/b/w p' f", "sed -n '1p;e' f", "sed -n 'p\nw out' f",
        "test -v 'a[$(x)]'", "[ -v 'a[$(x)]' ]", "[ 'a[$(x)]' -eq 0 ]", "test -f *", "[ -f a", "[ a -a b ]",
        "test -R x", "test -t 1", "command ls", "command -p ls", "command -v $USER", "type -a; rm x",
        # the shell
        "ls & rm x", "ls\nrm x", "ls;;ls", "ls; ; ls", "| ls", "&& ls", "ls || ", "(ls)", "{ ls; }", "! ls",
        "time ls",
        "a=1 ls", "a=1", "ls $(x)", "ls `x`", 'ls "`x`"', 'ls "$(x)"', "ls $((1))", "ls $[1]",
        "ls $'a'", 'ls $"a"', "ls ${x}", "ls $1", "ls $?", "ls $$", "ls $@", "ls $HOMEX", "echo $\\\n(rm x)",
        'echo "$\\\n(rm x)"', "l\\\ns", "ls a\\\nb", "ls &\\\n& rm", "echo {1..99999999}", "ls {a,b}{a,b}",
        "ls +(a|b)", "ls <(x)", "ls >(x)", "cat <<x", "cat <<<x", "cat <>x", "cat <&3", "ls >&3", "ls 2>&-", "ls >|x",
        "ls &>/dev/null touch x",
        "ls >& x", "ls &>x", "ls >>x", "ls 2>x", "ls >/dev/nul", "ls >/dev/null/x", "ls >/dev/tcp/a/1",
        "ls 3>/dev/null",
        "ls >", "ls > ;ls", "cat < ; ls", "cat < *", "ls 12>/dev/null", "cat < /dev/udp/a/1",
        "ls a\\", "ls 'a", 'ls "a', "ls 'a'\"", "ls\x0bx", "ls\x7f", "ls\x85x", "ls a\u200b", "ls a\u2028b",
        "ls \ufeffa",
        "ls a\ue000", "ls \U000e0041", "ls \u3164", "echo a\u3000; rm x", "ls \ud800",
        # names
        "LS", "ls.", "./ls", "../bin/ls", "/usr/local/bin/ls", "/bin/../tmp/ls", "/bin//ls", "/usr/bin/git log",
        "bin/ls",
        "'ls'", "l\\s", "l''s", "$SHELL", "*", "~/ls", "lscpu", "tee x",
        "less f", "man ls", "source f", ". f", ": > x", "eval ls", "exec ls", "busybox ls", "sudo -l", "python3 -c 1",
        "sh", "bash", "xargs", "kill 1", "history", "set", "unset PATH", "trap x 0", "help", "bc", "vi",
    ],
)  # fmt: skip
def test_potentially_harmful_commands_require_approval(command: str) -> None:
    """Every way past the list that is known asks a person, in siblings, too."""
    verdict = assessor().assess({"command": command})
    assert verdict.decision == "confirm", verdict


@pytest.mark.parametrize(
    "command",
    [
        "cat .env", "head -1 config/.env.local", "cat '/etc/sha'dow", "cat /etc/../etc/shadow",
        "cat /proc/self/environ",
        "grep -r KEY ~/.aws", "tail -F x.log", "tail --follow=name x", "free -s 1", "grep foo", "wc -l", "sort",
        "cat -",
        "cat - a", "ls -R /", "grep -r x /", "du -h /", "find / -type f", "find /", "cat /dev/zero | head",
        "cat $HOME/.ssh/id_rsa", 'cat "${HOME}/.netrc"', "cat ~/.ssh/*", "cat /etc/s*",
        "cd /etc; cat shadow",
        "cat server.ke?", "cat s[e]cret*", "cat *", "cat id_rsa*", "cat .e*", "cat */.en?", "cat {a,b}.key",
        "cat a.{key,b}",
        "cat /usr/../pr*c/self/environ", "cat ~root/.profile", "cat ~/*", "cat id_rsa.bak", "cat .env~",
        "cat .env-prod",
        "cat kubeconfig", "cat '#server.key#'", "cat .id_rsa.swp", "cat prod.env.old", "cat server.key.1",
        "head .kubeconfig",
        'cat "$USER/etc/shadow"', "cat $LANG/etc/shadow", 'cat "$PWD/.env"', "cat $HOME/.ssh/x", "cat $SHELL/x",
        "rg -f .env x",
        "strings @.env", "column -s .env x", "rg -uu --hidden ''", "grep -r '' .", "grep -r . ~", "rg x /etc",
        "grep -r x ~",
        "grep -r x /home/a", "diff -X .env a b", "grep --exclude-from=.env x f", "ls /proc", "ls /proc/1/fd",
        "ls -R //", "ls /pr*",
        "ls -R /usr/..", "tree /", "find /usr/.. -type f", "cd /; ls -R", "cd /usr && cd .. && find .",
        "find /proc -name x; ls /proc",
        "ls -R ../../../..", "du -a /*", "env", "printenv X", "find . -exec cat {} +", "for f in *; do cat $f; done",
        "git show HEAD:.env", "git log -p -- id_rsa", "git diff a .env", "for d in .. ..; do cd $d; done; cat x",
        "seq 1 999999999999", "cat < .env", "grep -f .env x", "jq .", "sed -n p /etc/shadow", "base64 server.key",
    ],
)  # fmt: skip
def test_hardened_profile_requires_approval_for_secrets_and_endless_commands(command: str) -> None:
    """Commands that the literal rule lets run ask under `hardened` only."""
    assert decision(command) == "auto"
    assert decision(command, "hardened") == "confirm"


@pytest.mark.parametrize(
    "command",
    [
        "cat *.{js,ts}", "cat test_*.py", "cat .github/workflows/*.yml", "grep -L foo *.txt", "sha1sum *",
        "cat \"$HOME/a.txt\"",
        "git status", "git diff", "git log -p src/a.py", "rg -n --hidden foo", "cat .env-example", "cat monkey.py",
        "ls *",
        "cat .env.example", "ls -la ~", "cat src/*.py", "grep shadow README.md", "echo .env", "which id_rsa",
        "ls | cat",
        "find / -name hosts 2>/dev/null | head -1", "cat /proc/meminfo", "ls / /tmp", "grep -rn foo",
        "cat a | grep -c b",
        "sort < names.txt", "test -f .env && echo there", "cat ~/.ssh_notes/../x", "seq 1 100", "cat id_rsa.pub",
    ],
)  # fmt: skip
def test_common_reading_commands_run_under_hardened(command: str) -> None:
    """A profile that asks at every turn would be switched off."""
    verdict = assessor("hardened").assess({"command": command})
    assert verdict.decision == "auto", verdict


@pytest.mark.parametrize(
    ("cwd", "command", "expect"),
    [
        ("/srv/app", "ls -la", ("auto", "auto")),
        ("/proc/self", "cat environ", ("auto", "confirm")),
        ("~/.ssh", "ls", ("auto", "confirm")),
        ("/", "grep -rn foo .", ("auto", "confirm")),
        ("a\nb", "ls", ("confirm", "confirm")),
        (["/"], "ls", ("confirm", "confirm")),
        ("/a", "rm b", ("confirm", "confirm")),
    ],
)
def test_cwd_argument_is_the_base_of_paths_under_hardened(cwd: object, command: str, expect: tuple[str, str]) -> None:
    """It only reads or computes wherever it runs; hardened judges its paths from there."""
    call = {"command": command, "cwd": cwd}
    assert (assessor().assess(call).decision, assessor("hardened").assess(call).decision) == expect


def test_unknown_arguments_beside_the_command_require_confirmation() -> None:
    """A time limit is harmless; an environment, a second argument list or a wrong type asks."""
    judge = assessor().assess
    assert judge({"command": "ls", "timeout": 5, "background": False}).decision == "auto"
    assert judge({"command": "ls", "env": None}).decision == "auto"
    for beside in ({"env": {}}, {"args": []}, {"timeout": "1; rm x"}, {"stdin": "x"}, {"shell": True}):
        assert judge({"command": "ls", **beside}).decision == "confirm"
    for command in (None, 1, True, [], ["ls"], {"cmd": "ls"}, b"ls"):
        assert judge({"command": command}).decision == "confirm"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["command", "timeout", "background", "x"]) | st.text(), JSON, max_size=4))
def test_command_assessor_returns_a_verdict_for_any_object(arguments: Json) -> None:
    """Whatever the model sends, there is a verdict."""
    for profile in ("literal", "standard", "hardened"):
        assert assessor(profile).assess(arguments).decision in ("auto", "confirm")


WORDS = (
    "ls cat find sort uniq sed test [ ] -n -o -- - | || && ; & > < 2>&1 >/dev/null $HOME $x ${ } ~ * ? ' \" \\ # ! ( )"
    " = . / a 5p"
)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(WORDS.split()) | st.text(max_size=3), max_size=12), st.sampled_from(["", " "]))
def test_command_assessor_returns_a_verdict_for_any_text(words: list[str], between: str) -> None:
    """Nor does any text that looks like a command."""
    for profile in ("literal", "standard", "hardened"):
        assert assessor(profile).assess({"command": between.join(words)}).decision in ("auto", "confirm")


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=10))
def test_a_stricter_profile_never_allows_more(words: list[str]) -> None:
    """Commands that `literal` or `hardened` lets run also run under `standard`."""
    text = " ".join(words)
    if decision(text) == "confirm":
        assert (decision(text, "literal"), decision(text, "hardened")) == ("confirm", "confirm")


def test_command_assessor_builds_with_a_known_profile_only() -> None:
    """`standard` is the default; an unknown profile or key is refused."""
    built = PLUGIN.build(Config(), None)  # type: ignore[arg-type]
    assert built.assess({"command": "sort a"}).decision == "auto"
    assert PLUGIN.build(Config(profile="literal"), None).assess({"command": "sort a"}).decision == "confirm"  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        Config(profile="lax")  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        Config(other=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("command", "expect"),
    [
        ("cd /proc/self; cat environ", "confirm"),
        ("cd /proc/self; cd /tmp | cat; cat environ", "confirm"),
        ("cd /proc/self; cd /nowhere; cat environ", "confirm"),
        ("cd .git; cat config", "confirm"),
        ("cd a; cd b; cd c; cd d; ls", "confirm"),
        ("cd ~/.ssh && ls", "confirm"),
        ("ls -la ~/.aws", "confirm"),
        ("echo ~/.ssh/*", "confirm"),
        ("cd /proc && cd self && cat environ", "confirm"),
        ("cd ~/.ssh; cat *", "confirm"),
        ("cd /; grep -r key .", "confirm"),
        ("cd /; cat < etc/shadow", "confirm"),
        ('cd "$HOME" && ls', "auto"),
        ("cd .. && cat README.md", "auto"),
        ("cd /tmp; ls", "auto"),
        ("ls -d .*", "auto"),
        ("find ~/.ssh -name x", "confirm"),
    ],
)
def test_hardened_resolves_paths_after_cd(command: str, expect: str) -> None:
    """A folder that was gone to counts in front of what is read behind it; names of files are no secret."""
    assert decision(command) == "auto"
    assert decision(command, "hardened") == expect


def test_overlong_command_requires_approval() -> None:
    """More pieces than a person would read are not judged, and cost next to nothing."""
    assert decision("echo " + "# a " * 200) == "auto"
    assert decision("echo a" + "#" * 2000) == "confirm"


@pytest.mark.parametrize("begin", ["cat ", "find . -name ", "git log ", "awk '", "printf '", "grep -r ", "sed s/a/"])
@pytest.mark.parametrize("piece", ["a ", '"a"', "a.bak", "~", "../", "print ", "%5", "; ", "| a ", "for (", "[", "a\n"])
def test_command_verdict_takes_linear_time(begin: str, piece: str) -> None:
    """Four times the text takes about four times the processor's time: nothing goes back over what it read."""
    judge = assessor("hardened")

    def cost_s(characters: int) -> float:
        command = begin + piece * (characters // len(piece))
        costs = []
        for _ in range(5):
            started = time.process_time()
            judge.assess({"command": command})
            costs.append(time.process_time() - started)
        return min(costs)

    assert cost_s(4000) < 12 * cost_s(1000) + 0.0005
