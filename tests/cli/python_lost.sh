# SPDX-License-Identifier: MIT
# python_lost.sh - the Python package (bindings/python): what becomes of a block whose lock is lost.

# shellcheck source=/dev/null
[ -z "${root:-}" ] || . "$root/bindings/python/tests/common.sh"

test_a_loss_interrupts_the_block() {
    package_tests test_threads.Losing
}

test_processes() {
    package_tests test_threads.Processes
}
