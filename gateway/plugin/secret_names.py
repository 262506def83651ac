"""The usual names of files and folders that hold secrets: a name that is one, a glob that may match one."""

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from gateway.plugin.word_lists import split_words

_FOLDERS = split_words("""
    .ssh .gnupg .aws .azure .kube .docker .gcloud .password-store .mozilla gcloud keyrings keychains wireguard
    system-connections private-keys-v1.d secrets .secrets
""")
#: Files with ordinary names that hold secrets in these folders.
_PLACED = frozenset(
    {
        ("gh", "hosts.yml"),
        (".m2", "settings.xml"),
        (".m2", "settings-security.xml"),
        (".gradle", "gradle.properties"),
        (".netlify", "config.json"),
        ("op", "config"),
        (".hg", "hgrc"),
        (".bundle", "config"),
        ("composer", "auth.json"),
        ("pip", "pip.conf"),
        (".pip", "pip.conf"),
        (".subversion", "servers"),
    }
)
#: Files of a repository, also of one within it, that hold the URLs of remotes with the passwords in them.
_REPOSITORY = frozenset({"config", "config.worktree", "fetch_head"})
_FILES = re.compile(
    r"""
    \.env(?![._-](?:example|sample|template|dist|schema)\Z)(?:[^a-z].*)? | \.envrc | .+\.env
  | \.netrc | _netrc | \.pgpass | \.my(?:login)?\.cnf | \.npmrc | \.pypirc | \.git-credentials | \.?htpasswd
  | \.vault[-_](?:token|pass.*) | \..*_history | \.boto | \.s3cfg | \.dockercfg | \.terraformrc
  | deploy_key | .*\.tfstate(?:\.backup)? | .+\.tfvars(?:\.json)?
  | id_(?:rsa|dsa|ecdsa|ed25519)(?!.*\.pub\Z).* | authorized_keys
  | ssh_host_.*_key | g?shadow-? | o?passwd- | opasswd | master\.passwd | sudoers | krb5\.keytab | krb5cc_.*
  | .+\.(?:pem|key|p8|p12|pfx|pkcs12|jks|keystore|kdbx?|keytab|ppk|pvk|ovpn|keychain(?:-db)?)
  | \.?(?:.+[-_])?credentials(?:\.(?:json|tfrc\.json|ya?ml|toml|ini|db|xml|csv))? | (?:access|root)[-_]?keys?\.csv
  | \.?(?:.+[-_.])?secrets?(?:\.(?:json|ya?ml|toml|ini|env|txt))? | client_secret.*\.json | secring\.gpg
  | (?:gcp|gcloud|google|firebase|sa)[-_](?:.+[-_])?key.*\.json | .*firebase[-_]adminsdk.*\.json
  | auth\.json | \.claude\.json | wp-config\.php | database\.ya?ml | local\.settings\.json | datasources\.local\.xml
  | env\.(?:prod|production|local|dev|development|staging) | wg[0-9]+\.conf | wpa_supplicant\.conf | rclone\.conf
  | \.(?:fetchmailrc|msmtprc|muttrc|smbcredentials|ftpconfig|dockerconfigjson|cvspass|[xi][a-z]*authority)
  | sftp(?:-config)?\.json | key[34]\.db | logins\.json | login\ data | cookies(?:\.(?:sqlite|txt))?
  | (?:private|api)[-_]?keys?(?:\.(?:txt|json))?
  | \.?tokens?(?:\.(?:txt|json))?
  | service[-_]account.*\.json | wallet\.dat | \.?passwords?(?:\.(?:txt|csv|json|ya?ml))?
  | \.?(?:.+[-_.])?kube[-_]?config
    """,
    re.VERBOSE | re.DOTALL,
)
#: What editors and people put behind the name of a copy.
_COPY = re.compile(
    r"(?:~|\#|[-_. ](?:bak|backup|old|orig|original|saved?|sav|swp|swo|copy|tmp|new|prod|production|staging|dev|local"
    r"|test|gz|bz2|xz|zip|tgz|[0-9]{1,8}|ya?ml))\Z"
)
_MOST_COPIES = 4
_MOST_CHARS = 255

_GLOB = re.compile(r"[*?\[]")
#: Names that a glob may match, besides any name with one of the endings.
_EXACT = tuple(
    sorted(
        split_words("""
            .env .envrc .netrc .pgpass .my.cnf .npmrc .pypirc .git-credentials .htpasswd .vault-token .bash_history
            .zsh_history .boto .s3cfg .dockercfg .kubeconfig .terraformrc
            _netrc deploy_key id_rsa id_dsa id_ecdsa id_ed25519 authorized_keys ssh_host_rsa_key ssh_host_ed25519_key
            shadow gshadow master.passwd sudoers credentials secret secrets kubeconfig
        """)
        | _FOLDERS
    )
)
_ENDINGS = (
    *(".pem", ".key", ".p12", ".pfx", ".pkcs12", ".jks", ".keystore", ".kdbx", ".keytab", ".ppk", ".ovpn", ".env"),
    *(".tfstate", ".tfvars", ".p8", ".kdb"),
)
#: Names with an ending that many other files have: a glob is only taken to mean them by its beginning.
_COMMON = (
    *("credentials.", "secret.", "secrets.", "passwords.", "service-account.", "wallet.dat", "token.", "client_secret"),
    *(
        "auth.json",
        "wp-config.php",
        "database.yml",
        "local.settings.json",
        "logins.json",
        "cookies.",
        "wpa_supplicant.",
    ),
    *("access-keys.csv", "accesskeys.csv", "rootkey.csv", "firebase-adminsdk", "krb5cc_", "rclone.conf"),
)
_TELLING = 3


def is_secret_folder(name: str) -> bool:
    return name in _FOLDERS or any(name in _FOLDERS for name in _guess_originals(name))


def is_secret_file(name: str) -> bool:
    """Return whether a file of this name (lower case) usually holds secrets, or is a copy of one that does.

    A name that is too long for a file is not searched.
    """
    if len(name) > _MOST_CHARS:
        return True
    return bool(_FILES.fullmatch(name)) or any(_FILES.fullmatch(original) for original in _guess_originals(name))


def is_secret_there(parts: Sequence[str]) -> bool:
    """Return whether a path of these names or globs (lower case) may lead to a file that holds secrets where it is."""
    *folders, name = parts
    if any(folder.endswith(".git") or _fits_glob(folder, ".git") for folder in folders):
        return any(_fits_glob(name, file) for file in _REPOSITORY)
    return bool(folders) and any(_fits_glob(folders[-1], folder) and _fits_glob(name, file) for folder, file in _PLACED)


def may_match_secret(glob: str) -> bool:
    """Return whether a glob for one name (lower case) may match the name of a file or folder with secrets."""
    before, behind = _split_around_wildcards(glob)
    if _may_match(_EXACT, before, behind):
        return True
    if any(ending.endswith(behind) or behind.endswith(ending) for ending in _ENDINGS):
        return True
    return len(before) >= _TELLING and any(name.startswith(before) or before.startswith(name) for name in _COMMON)


def may_match_secret_folder(glob: str) -> bool:
    """Return the same for a folder on the way; one that may have any name is taken for an ordinary one."""
    before, behind = _split_around_wildcards(glob)
    return bool(before or behind) and _may_match(_FOLDERS, before, behind)


def _fits_glob(glob: str, name: str) -> bool:
    # A leading dot is matched by a dot only.
    return glob == name or (name.startswith(".") <= glob.startswith(".") and fnmatchcase(name, glob[:_MOST_CHARS]))


def _may_match(names: Collection[str], before: str, behind: str) -> bool:
    # A leading dot is matched by a dot only.
    return any(
        name.startswith(before) and name.endswith(behind) and (before.startswith(".") or not name.startswith("."))
        for name in names
    )


def _split_around_wildcards(glob: str) -> tuple[str, str]:
    """Return the fixed text in front of the first and behind the last wildcard."""
    wild = [match.start() for match in _GLOB.finditer(glob)]
    return glob[: wild[0]], glob[max(wild[-1], glob.rfind("]")) + 1 :]


def _guess_originals(name: str) -> list[str]:
    """Return what a copy may be a copy of: `.id_rsa.swp`, `#x.key#`, `.env~`."""
    found = []
    bare = name
    for _ in range(_MOST_COPIES):
        copy = _COPY.search(bare)
        if copy is None:
            break
        bare = bare[: copy.start()]
        found += [bare, bare.lstrip("#"), bare.removeprefix(".")]
    return found
