# SPDX-License-Identifier: MIT
"""base.py - what the tests share: a server of their own, on a unix socket."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import holdfast

SERVER = os.environ.get("HF_TEST_SERVER") or shutil.which("redis-server") or "valkey-server"
ASK = shutil.which("redis-cli") or "valkey-cli"


class ServerCase(unittest.TestCase):
    """Each class of tests has a server, and $HOLDFAST_URL names it."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="hfpy.")
        cls.socket = cls.dir + "/sock"
        # It dies with us, however we end.
        cls.server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", SERVER, "--port", "0", "--unixsocket", cls.socket,
             "--dir", cls.dir, "--save", "", "--logfile", cls.dir + "/log"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.environ["HOLDFAST_URL"] = "unix://" + cls.socket
        cls.until(cls.answers)

    @classmethod
    def answers(cls):
        """The file is there before anybody listens."""
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(cls.socket)
            except OSError:
                return False
        return True

    @classmethod
    def tearDownClass(cls):
        holdfast.default_client().close()
        cls.server.kill()
        cls.server.wait()
        shutil.rmtree(cls.dir, ignore_errors=True)

    def setUp(self):
        self.ask("FLUSHALL")

    @classmethod
    def ask(cls, *words):
        """What redis-cli says."""
        return subprocess.check_output([ASK, "-s", cls.socket, *words], text=True).rstrip("\n")

    @staticmethod
    def until(condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError("not within %s s" % seconds)
            time.sleep(0.01)

    def python(self, program, **options):
        """Another Python that runs this program."""
        return subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                stdin=subprocess.PIPE, **options)
