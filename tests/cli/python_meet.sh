# SPDX-License-Identifier: MIT
# python_meet.sh - the Python package (bindings/python): latches, barriers, sequences, updates.

# shellcheck source=/dev/null
[ -z "${root:-}" ] || . "$root/bindings/python/tests/common.sh"

test_latches_and_barriers() {
    package_tests test_meet.Latches test_meet.Barriers
}

test_sequences_and_updates() {
    package_tests test_meet.Sequences test_meet.Updates
}
