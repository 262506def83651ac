"""What the spelling of a text or path tells before anything is opened: invisible characters, secrets, devices."""

import re
import unicodedata

from gateway.wire.wordlist import words

# Letters, symbols and marks that show nothing; control, format, private and unassigned ones go by their category.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
#: The wide blank of Chinese and Japanese texts: it shows, as two columns.
_WIDE_BLANK = "\u3000"

_FOLDERS = words("""
    .ssh .gnupg .aws .azure .kube .docker .gcloud .password-store .mozilla gcloud keyrings keychains
""")
_FILES = re.compile(
    r"""
    \.env(?:\.(?!example\Z|sample\Z|template\Z|dist\Z).+)? | \.envrc | .+\.env
  | \.netrc | _netrc | \.pgpass | \.my\.cnf | \.npmrc | \.pypirc | \.git-credentials | \.htpasswd | \.vault-token
  | \..*_history | \.boto | \.s3cfg | \.dockercfg
  | deploy_key | .*\.tfstate(?:\.backup)? | id_(?:rsa|dsa|ecdsa|ed25519)[^.]* | authorized_keys | ssh_host_.*_key
  | g?shadow-? | master\.passwd | sudoers | krb5\.keytab
  | .+\.(?:pem|key|p12|pfx|pkcs12|jks|keystore|kdbx|keytab|ppk)
  | credentials(?:\.(?:json|tfrc\.json|ya?ml|toml|ini|db|xml))? | secrets?(?:\.(?:json|ya?ml|toml|ini|env|txt))?
  | service[-_]account.*\.json | wallet\.dat | \.?passwords?\.(?:txt|csv|json|ya?ml)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLACES = (
    "/run/secrets",
    "/var/run/secrets",
    "/root",
    "/etc/ssl/private",
    "/etc/sudoers.d",
    "/boot",
    "/sys/kernel",
    "/etc/kubernetes",
)
#: Of /proc only what describes the machine; the rest are processes, their memory and environments.
_PUBLIC_PROC = re.compile(
    "/proc/(?:cpuinfo|meminfo|version|uptime|loadavg|stat|mounts|filesystems|partitions|diskstats|vmstat|swaps|devices"
    "|net/(?:dev|route|tcp|udp|arp))?"
)
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def unseen(text: str) -> str | None:
    """The first character that a person would not see, as `U+202E`; None: what is shown is what is there.

    Tabs, line ends, emoji presentation and the wide blank are visible enough.
    """
    if text.isascii():
        control = _CONTROL.search(text)
        return f"U+{ord(control.group()):04X}" if control else None
    if text.isprintable() and not _BLANK.search(text):
        return None
    for character in text:
        if character.isascii():
            if character.isprintable() or character in "\t\n":
                continue
        elif character == _WIDE_BLANK or not (unicodedata.category(character)[0] in "CZ" or _BLANK.match(character)):
            continue
        return f"U+{ord(character):04X}"
    return None


def concern(path: str) -> str | None:
    """Why reading this path needs a person under the hardened profile; None: nothing in its spelling says so.

    Both separators count, case does not, and dot segments are resolved as written.
    """
    unified = path.replace("\\", "/").lower()
    if unified.startswith("//"):
        return "it names another machine's share"
    if _URL.match(unified) and not re.match("[a-z]:/", unified):
        return "it is a URL, not a path"
    parts = _resolved(unified)
    # Dots that lead out of an unknown folder may end at the root.
    absolute = "/" + "/".join(parts) if unified.startswith(("/", "..")) or "/../" in unified else ""
    if any(part in _FOLDERS for part in parts) or (parts and _FILES.fullmatch(parts[-1])):
        return "it may hold secrets"
    if any(absolute == place or absolute.startswith(place + "/") for place in _PLACES):
        return "it is a system's private place"
    if absolute.startswith("/proc/") and not _PUBLIC_PROC.fullmatch(absolute):
        return "it shows processes and their environments"
    if absolute.startswith("/dev/") and absolute != "/dev/null":
        return "it is a device"
    return None


def glob_concern(path: str) -> str | None:
    """The same for a path with a glob in it, which may be anything in a place where secrets are."""
    unified = path.lower()
    if re.match(r"/(?:etc|proc|dev|root|home|run|var/run|users|[^/]*[*?\[{])|~|(?:.*/)?\.[^./]", unified):
        return "its glob may match secrets"
    return concern(path)


def _resolved(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts
