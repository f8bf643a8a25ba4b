#!/bin/sh
# Written by `policybridge corpus record`: notes how this tool is called, then becomes the tool. Without a folder for
# notes it only becomes the tool, so that a build folder that remembers this path stays usable.
tool=@TOOL@
folder=@FOLDER@
# What the tool starts itself (a compiler its linker) is no call of the build's own.
case ":$PATH:" in
*":$folder:"*)
    path=":$PATH:"
    path="${path%%":$folder:"*}:${path#*":$folder:"}"
    path="${path#:}"
    PATH="${path%:}"
    ;;
esac
if [ -n "${POLICYBRIDGE_RECORD-}" ]; then
    # One new file a process: no two calls ever write to the same one, and none waits for another.
    set -C
    number=0
    while [ "$number" -lt 100 ]; do
        note="$POLICYBRIDGE_RECORD/$$.$number"
        if { printf '%s\0' "$PWD" "$tool" "${CPATH-}" "${C_INCLUDE_PATH-}" "${CPLUS_INCLUDE_PATH-}" "$#" "$@" >"$note"; } 2>/dev/null; then
            # A response file is often removed as soon as the tool has ended.
            index=0
            for word; do
                case "$word" in
                @?*) [ -f "${word#@}" ] && cat -- "${word#@}" 2>/dev/null >"$note.$index" ;;
                esac
                index=$((index + 1))
            done
            break
        fi
        number=$((number + 1))
    done
    set +C
fi
# Nothing that the tool starts is noted again, by whatever name it is started.
unset POLICYBRIDGE_RECORD POLICYBRIDGE_WRAPPER POLICYBRIDGE_TOOL
exec "$tool" "$@"
