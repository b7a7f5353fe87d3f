#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""build.py - makes the Python package. Needs cffi; what it makes needs only cffi's backend.

    build.py stage DECLARATIONS VERSION DIR           the package, ready to be imported, in DIR
    build.py wheel DECLARATIONS VERSION LIBRARY DIR   a wheel with the shared library in it, in DIR

DECLARATIONS is what tools/declare.sh made of include/holdfast.h, so the package declares what the
library of the same tree does. For a distribution's package, stage into its folder of modules: the
shared library is then the system's. A wheel brings its own.
"""
import base64
import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "holdfast"

METADATA = """\
Metadata-Version: 2.1
Name: holdfast
Version: {version}
Summary: Distributed locks on Redis and Valkey
License: MIT
Requires-Python: >=3.9
Requires-Dist: cffi
Description-Content-Type: text/markdown

{readme}"""


def stage(declarations, version, folder):
    """Copy the sources, and compile the declarations to a module that is loaded at once."""
    from cffi import FFI

    to = os.path.join(folder, PACKAGE)
    os.makedirs(to, exist_ok=True)
    for name in os.listdir(os.path.join(HERE, PACKAGE)):
        if name.endswith((".py", ".pyi")) or name == "py.typed":
            shutil.copyfile(os.path.join(HERE, PACKAGE, name), os.path.join(to, name))
    ffi = FFI()
    with open(declarations) as f:
        ffi.cdef(f.read())
    ffi.set_source("holdfast._ffi", None)
    ffi.emit_python_code(os.path.join(to, "_ffi.py"))
    with open(os.path.join(to, "_version.py"), "w") as f:
        f.write("# Made by build.py.\nVERSION = %r\nSONAME = %r\n" % (version, soname(version)))


def soname(version):
    return "libholdfast.so." + version.split(".")[0]


def wheel(declarations, version, library, folder):
    """A wheel is a zip file with a list of its files and their digests. The same sources make the
    same bytes, whenever it is made."""
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    info = "%s-%s.dist-info" % (PACKAGE, version)
    path = os.path.join(folder, "%s-%s-%s.whl" % (PACKAGE, version, tag))
    with open(os.path.join(HERE, "README.md")) as f:
        metadata = METADATA.format(version=version, readme=f.read())
    with tempfile.TemporaryDirectory() as tree:
        stage(declarations, version, tree)
        shutil.copyfile(library, os.path.join(tree, PACKAGE, soname(version)))
        files = {}
        for name in sorted(os.listdir(os.path.join(tree, PACKAGE))):
            with open(os.path.join(tree, PACKAGE, name), "rb") as f:
                files[PACKAGE + "/" + name] = f.read()
    files[info + "/METADATA"] = metadata.encode()
    files[info + "/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: false\nTag: %s\n" % tag
    ).encode()
    record = "".join(
        "%s,sha256=%s,%d\n" % (name, digest(data), len(data)) for name, data in files.items()
    )
    files[info + "/RECORD"] = (record + info + "/RECORD,,\n").encode()
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
    os.replace(path + ".new", path)
    print(path)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "stage":
        stage(*sys.argv[2:])
    elif len(sys.argv) == 6 and sys.argv[1] == "wheel":
        wheel(*sys.argv[2:])
    else:
        sys.exit(__doc__)
