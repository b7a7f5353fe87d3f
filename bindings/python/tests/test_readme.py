# SPDX-License-Identifier: MIT
"""test_readme.py - each program of README.md runs."""
import os
import re
import unittest

from base import ServerCase

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "README.md")


class Readme(ServerCase):
    def test_every_program_runs(self):
        with open(README) as f:
            programs = re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)
        self.assertGreater(len(programs), 7)
        url = os.environ["HOLDFAST_URL"]
        running = []
        for i, program in enumerate(programs):  # each for itself: names occur in several of them
            env = dict(os.environ, REDIS_SOCKET=self.socket, HOLDFAST_URL="%s?db=%d" % (url, i))
            running.append((program, self.python(program, env=env)))
        for program, p in running:
            out, err = p.communicate(timeout=50)
            self.assertEqual(p.returncode, 0, program + out + err)
            if "LockLost as e" in program:
                self.assertIn("was lost", out)


if __name__ == "__main__":
    unittest.main()
