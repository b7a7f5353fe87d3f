# SPDX-License-Identifier: MIT
"""page.py - the page of `holdfast web` in a real browser: page.py CHROMIUM FOLDER SHOTS WHAT URL

Prints nothing and exits 0 if all is as it should be. SHOTS gets the screenshots."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser

program, folder, shots, what, url = sys.argv[1:6]
holdfast = os.environ['HOLDFAST']
b = Browser(program, folder)


def shot(name):
    b.shot(os.path.join(shots, name + '.png'))


def check(expression):
    if not b.run(f'!!({expression})'):
        shot('failed')
        raise AssertionError('not true: ' + expression)


def row(name):
    return f'[...document.querySelectorAll("#rows td.name")].find(e => e.textContent == {name!r})'


def opened(name):
    b.run(f'{row(name)}.querySelector("button").click()')
    b.until('document.querySelector("tr.more")')


def shows():
    """The state comes, is live, and nothing in it was taken for markup."""
    b.look(1280, 1000, 'light')
    b.open(url)
    b.until(row('deploy'))
    b.until('document.getElementById("live").textContent == "live"')
    check('document.querySelectorAll("script").length == 1 && !document.querySelector("#rows b")')
    check('location.hash == ""') # the token is not left where others see it
    check('getComputedStyle(document.body).backgroundColor == "rgb(246, 247, 249)"')
    check('document.querySelector("#graph svg") && !document.querySelector("#graph script")')
    check('document.getElementById("graph").textContent.includes("<script>alert(1)</script>")')


def looks():
    """Wide and narrow, light and dark: nothing is wider than the window."""
    opened('deploy')
    for width, height in ((1280, 1000), (390, 1400)):
        for scheme in ('light', 'dark'):
            b.look(width, height, scheme)
            b.until(f'innerWidth == {width}')
            check(f'document.documentElement.scrollWidth <= {width}')
            shot(f'{"wide" if width > 600 else "narrow"}-{scheme}')
    check('getComputedStyle(document.body).backgroundColor == "rgb(15, 19, 23)"')
    b.look(1280, 1000, 'light')


def lives():
    """What changes is shown without a reload; filter, sort and pause work."""
    b.run('window.same = true')
    p = subprocess.Popen([holdfast, 'run', 'fresh', '--', 'sleep', '1000'])
    b.until(row('fresh'))
    p.terminate()
    p.wait()
    b.until(f'!{row("fresh")} || {row("fresh")}.closest("tr").classList.contains("free")')
    check('window.same')
    b.run('document.getElementById("filter").value = "deplo"; '
          'document.getElementById("filter").dispatchEvent(new Event("input"))')
    check('document.querySelectorAll("#rows td.name").length == 1')
    b.run('document.getElementById("filter").value = ""; '
          'document.getElementById("filter").dispatchEvent(new Event("input"))')
    check('document.querySelectorAll("#rows td.name").length > 1')
    b.run('document.getElementById("pause").click()')
    b.until('document.getElementById("live").textContent == "paused"')
    b.run('document.getElementById("pause").click()')
    b.until('document.getElementById("live").textContent == "live"')


def breaks():
    """A break needs a yes, and says what came of it."""
    button = 'document.querySelector("tr.more button.danger")'
    go = 'document.getElementById("ask-go")'
    b.until(button)
    b.run(f'{button}.click()')
    check('document.getElementById("ask").open')
    check(f'{go}.disabled')
    shot('ask')
    for text in ('ye', 'yes'):
        b.run(f'document.getElementById("ask-yes").value = "{text}"; '
              'document.getElementById("ask-yes").dispatchEvent(new Event("input"))')
        check(f'{go}.disabled == {"true" if text == "ye" else "false"}')
    b.run(f'{go}.click()')
    b.until('/^deploy: (broken|marked|not broken: this build)/'
            '.test(document.getElementById("said").textContent)')


def logs_in():
    """Without the token the page asks for it, and shows nothing."""
    token = url.split('#token=')[1]
    b.run('sessionStorage.clear()')
    b.open(url.split('#')[0])
    b.until('!document.getElementById("login").hidden')
    check('document.querySelectorAll("#rows tr").length == 0')
    shot('login')
    b.run(f'document.getElementById("token").value = {token!r}; '
          'document.querySelector("#login button").click()')
    b.until(row('deploy'))
    check('document.getElementById("login").hidden')


def away():
    """A lock server that is gone is said."""
    b.look(1280, 1000, 'light')
    b.open(url)
    b.until('!document.getElementById("alert").hidden', 40)
    check('document.getElementById("alert").textContent.includes("does not answer")')
    # Nothing was seen, so nothing is claimed.
    check('document.getElementById("n-locks").textContent == "-"')
    check('!document.body.innerText.includes("No lock") && !document.body.innerText.includes("Nobody")')
    shot('away')


def deadlock():
    b.look(1280, 1000, 'light')
    b.open(url)
    b.until('!document.getElementById("deadlocks").hidden')
    check('document.title.startsWith("DEADLOCK")')
    check('document.querySelectorAll("#graph .dead").length > 0')
    for scheme in ('light', 'dark'):
        b.look(1280, 1000, scheme)
        shot('deadlock-' + scheme)


try:
    for step in {'all': (shows, looks, lives, breaks, logs_in), 'away': (away,),
                 'deadlock': (deadlock,)}[what]:
        step()
    # A refusal is an answer like any other, and Chromium logs it.
    left = [c for c in b.complaints if 'responded with a status of' not in c]
    if left:
        raise AssertionError('the browser complains: ' + '; '.join(left))
finally:
    b.close()
