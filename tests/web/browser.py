# SPDX-License-Identifier: MIT
"""browser.py - a headless Chromium, driven through its pipe; only what Python brings is used."""
import base64
import json
import os
import select
import subprocess
import time


class Browser:
    def __init__(self, program, folder):
        # It must find nothing but this machine, whatever it would like to fetch.
        flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars',
                 '--no-first-run', '--disable-background-networking', '--disable-component-update',
                 '--disable-sync', '--disable-default-apps', '--disable-extensions',
                 '--disable-dev-shm-usage', '--remote-debugging-pipe',
                 '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
                 '--user-data-dir=' + folder]
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def wire():  # it reads 3 and writes 4
            high_in, high_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        self.process = subprocess.Popen([program] + flags + ['about:blank'], preexec_fn=wire,
                                        close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read_fd, self.write_fd = ours_in, ours_out
        self.buffer, self.next_id, self.session, self.complaints = b'', 0, None, []
        targets = self.call('Target.getTargets')['targetInfos']
        page = next(t for t in targets if t['type'] == 'page')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=page, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log'):
            self.call(domain + '.enable')

    def message(self, seconds):
        until = time.monotonic() + seconds
        while b'\0' not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                raise TimeoutError('the browser does not answer')
            got = os.read(self.read_fd, 1 << 20)
            if not got:
                raise EOFError('the browser has ended')
            self.buffer += got
        text, self.buffer = self.buffer.split(b'\0', 1)
        message = json.loads(text)
        if message.get('method') == 'Runtime.exceptionThrown':
            self.complaints.append(str(message['params']['exceptionDetails']))
        if message.get('method') == 'Log.entryAdded':
            entry = message['params']['entry']
            if entry['level'] == 'error':
                self.complaints.append(entry['text'] + ' ' + entry.get('url', ''))
        return message

    def call(self, method, **params):
        self.next_id += 1
        call = {'id': self.next_id, 'method': method, 'params': params}
        if self.session:
            call['sessionId'] = self.session
        os.write(self.write_fd, json.dumps(call).encode() + b'\0')
        while True:
            message = self.message(30)
            if message.get('id') == self.next_id:
                if 'error' in message:
                    raise RuntimeError(f'{method}: {message["error"]}')
                return message['result']

    def run(self, expression):
        """The value of an expression in the page."""
        got = self.call('Runtime.evaluate', expression=expression, returnByValue=True,
                        awaitPromise=True)
        if 'exceptionDetails' in got:
            raise RuntimeError(f'{expression}: {got["exceptionDetails"]}')
        return got['result'].get('value')

    def until(self, expression, seconds=20):
        """Wait until it is true in the page."""
        end = time.monotonic() + seconds
        while not self.run(f'!!({expression})'):
            if time.monotonic() > end:
                self.shot('failed.png')
                raise AssertionError(f'not within {seconds} s: {expression}')
            time.sleep(0.05)

    def open(self, url):
        self.call('Page.navigate', url='about:blank') # else a new # alone loads nothing
        self.call('Page.navigate', url=url)
        self.until('document.readyState == "complete"')

    def look(self, width, height, scheme):
        """The size of the window, and light or dark."""
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call('Emulation.setEmulatedMedia',
                  features=[{'name': 'prefers-color-scheme', 'value': scheme}])

    def shot(self, path):
        data = self.call('Page.captureScreenshot', format='png')['data']
        with open(path, 'wb') as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.call('Browser.close')
        except (OSError, EOFError, TimeoutError):
            pass
        self.process.wait(20)
