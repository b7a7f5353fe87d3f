# SPDX-License-Identifier: MIT
# python_async.sh - the Python package (bindings/python): asyncio.

# shellcheck source=/dev/null
[ -z "${root:-}" ] || . "$root/bindings/python/tests/common.sh"

test_asyncio() {
    package_tests test_asyncio
}
