# shellcheck shell=bash
# Sourced by ops/check behind ops/setup.sh: what runs beside the rest, several processes with tests, and what has the
# lowest weight. It needs a folder `scratch`.

in_background=() said=()
failed=() # tests that failed beside others, and shall run once more
FAILED_MAX=8 # more than these are no accident of a busy machine

# beside TESTS... [-- TESTS...]...: run each with pytest, in a process of its own. What the others print is shown once all are done.
beside() {
    local lane=() lanes=1 pids=() shown=() status=0 argument
    for argument in "$@"; do
        [ "$argument" != -- ] || lanes=$((lanes + 1))
    done
    for argument in "$@" --; do
        if [ "$argument" != -- ]; then
            lane+=("$argument")
            continue
        fi
        if [ ${#pids[@]} = 0 ]; then
            pytest_of 0 "$lanes" "${lane[@]}" &
        else
            shown+=("$(mktemp)")
            pytest_of ${#pids[@]} "$lanes" "${lane[@]}" >"${shown[-1]}" 2>&1 &
        fi
        pids+=($!)
        lane=()
    done
    wait_for_all "${pids[@]}" || status=$?
    cat "${shown[@]}"
    rm -f "${shown[@]}"
    return "$status"
}
# As pytest-xdist does, so that each process chooses ports from a share of its own (tests/conftest.py).
pytest_of() {
    PYTEST_XDIST_WORKER=gw$1 PYTEST_XDIST_WORKER_COUNT=$2 "$VENV/bin/python" -m pytest -q "${@:3}"
}
wait_for_all() {
    local status=0 pid
    for pid in "$@"; do
        wait "$pid" || status=$?
    done
    return "$status"
}

# in_lanes ARGUMENTS...: run pytest in three processes, each of which takes the next file that none has. If only a few tests
# fail, that is a success for now: `failed` has them.
in_lanes() {
    local status=0 lists
    mkdir "$scratch/taken" "$scratch/failures"
    TEST_FILES_TAKEN=$scratch/taken TEST_FAILURES=$scratch/failures beside "$@" -- "$@" -- "$@" || status=$?
    [ "$status" != 0 ] || return 0
    lists=("$scratch/failures"/*) # a process that ends before its last test leaves none
    [ ${#lists[@]} = 3 ] || return "$status"
    mapfile -t failed < <(sort -u "${lists[@]}")
    [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le "$FAILED_MAX" ] || return "$status"
    say "${#failed[@]} tests failed beside others, and run once more when all else has ended: ${failed[*]}"
}
failed_alone() {
    [ ${#failed[@]} = 0 ] || "$VENV/bin/python" -m pytest -q "${failed[@]}"
}
say_unsteady() {
    [ ${#failed[@]} = 0 ] || say "unsteady: ${#failed[@]} tests failed beside others and passed alone: ${failed[*]}"
}

# behind COMMAND...: begin it; it has what all others leave of the processors. Where the kernel weighs sessions against each
# other, nice counts within one, so it has a session of its own with the least weight.
behind() {
    said+=("$scratch/behind-${#said[@]}")
    setsid nice -n 19 bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec "$@"' behind "$@" >"${said[-1]}" 2>&1 &
    in_background+=($!)
}
what_was_behind() {
    local status=0
    wait_for_all "${in_background[@]}" || status=$?
    in_background=()
    cat "${said[@]}"
    return "$status"
}
