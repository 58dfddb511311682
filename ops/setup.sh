# shellcheck shell=bash
# Sourced by ops/check, ops/up and ops/add-spark: the virtual environment that both run in. It writes nothing outside the
# checkout but the caches of pip and Go.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
# Another project's modules must not stand in for ours: `ops` and `quorum` are common names.
unset PYTHONPATH PYTHONHOME

say() { printf '%s\n' "$*" >&2; }

# die WHAT CURE
die() {
    say "ops/$(basename "$0"): $1"
    say "  what to do: $2"
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

is_optimised() { "$1" -I "$ROOT/ops/python_build.py" >/dev/null 2>&1; }

# Every Python that is new enough, one a line: PYTHON, then those on PATH.
pythons() {
    local path
    {
        printf '%s\n' "${PYTHON:-}"
        type -aP python3 python3.14 python3.13 python3.12 python3.11 python || true
    } | while read -r path; do
        ! is_new_enough "$path" || printf '%s\n' "$path"
    done
}

# The first of them that was built with optimisations, or else the first: what runs for long is worth a faster Python than the
# first on PATH. PYTHON itself is taken as it is.
find_python() {
    local found path
    found=$(pythons)
    if [ -z "${PYTHON:-}" ]; then
        while read -r path; do
            if is_optimised "$path"; then
                printf '%s' "$path"
                return
            fi
        done <<<"$found"
    fi
    printf '%s' "${found%%$'\n'*}"
    [ -n "$found" ]
}

# Say which Python the virtual environment has, and what it costs if it was built without optimisations.
report_python() {
    local version path=$VENV/bin/python
    version=$("$path" -c 'import os, platform, sys; print(platform.python_version(), os.path.realpath(sys.executable))')
    if is_optimised "$path"; then
        say "Python $version, optimised"
        return
    fi
    say "Python $version, built without optimisations: a write takes 10 to 20 % more processor time." \
        "To change that, put one built with --enable-optimizations on PATH or name it in PYTHON, and: rm -r $VENV"
}

# install EXTRAS: make .venv hold this project and its extras, in the versions of ops/lock/EXTRAS.txt. Instant when neither
# pyproject.toml nor the lock has changed since.
install() {
    local extras=$1 python stamp key held is_enough=
    if ! is_new_enough "$VENV/bin/python"; then
        python=$(find_python) || die "no Python 3.11 or newer found" \
            "install one (Debian: apt-get install python3 python3-pip), or name one: PYTHON=/path/to/python3 $0"
        say "making $VENV with $("$python" --version) ($python)"
        "$python" -m venv --clear --without-pip "$VENV" || die_without_venv "$python"
    fi
    # Asked apart from Python: who was interrupted behind that has one without the other.
    [ -e "$VENV/bin/pip" ] || add_pip || die_without_venv "$(find_python)"
    report_python
    stamp=$VENV/.installed-$extras
    key=$("$VENV/bin/python" - "$ROOT" <<'PYTHON'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
files = [root / "pyproject.toml", *sorted((root / "ops/lock").glob("*.txt"))]
content = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
# The root too: an editable install knows where it is, so a moved checkout is installed again.
print(content, sys.version_info[:3], root)
PYTHON
    )
    # Each of these holds all that stands before it.
    for held in core replay replay,kafka replay,dev; do
        [ "$held" != "$extras" ] || is_enough=yes
        [ -z "$is_enough" ] || [ "$(cat "$VENV/.installed-$held" 2>/dev/null)" != "$key" ] || return 0
    done
    if [ "$extras" = core ]; then
        say "installing into $VENV (the first time about 50 MB)"
    else
        say "installing into $VENV (the first time about 1 GB and some minutes)"
    fi
    install_locked "${extras//,/-}" || die "pip could not install the project" \
        "see pip's words above; if the network was at fault, run this again; to start over: rm -r $VENV"
    printf '%s' "$key" >"$stamp"
}

# install_locked LOCK: install what ops/lock/LOCK.txt names, each file with a hash that stands there, and then the project. The
# first step brings a newer pip: one before 23.1 builds PySpark's wheel again each time, as it takes none of its own by hash.
install_locked() {
    pip_install --require-hashes --requirement "$ROOT/ops/lock/build.txt" &&
        pip_install --require-hashes --no-build-isolation --requirement "$ROOT/ops/lock/$1.txt" &&
        pip_install --no-build-isolation --no-deps --editable "$ROOT"
}

add_pip() {
    # Debian ships venv without ensurepip unless python3-venv is installed; then the outer pip fills the inside.
    local outer
    ! "$VENV/bin/python" -m ensurepip --default-pip >/dev/null 2>&1 || return 0
    while read -r outer; do
        ! "$outer" -m pip --python "$VENV/bin/python" install -q pip </dev/null || return 0
    done < <(pythons)
    return 1
}

# die_without_venv PYTHON
die_without_venv() {
    die "cannot make a virtual environment in $VENV" \
        "install venv and pip for $1 (Debian: apt-get install python3-venv python3-pip) and run this again"
}

# Without what setuptools warns developers of packages of. To compile every module takes a third of the time: where Python may
# write what it compiles, it does so for those that it imports.
pip_install() {
    local compiling=--no-compile
    [ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || compiling=--compile
    PYTHONWARNINGS=ignore "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$compiling" "$@"
}
