#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pictures.py - the pictures of the protocol, as SVG: who does what, from left to right in time.

    pictures.py FOLDER      write NAME.svg and NAME.zh.svg for each picture
    pictures.py             the same into docs/pictures

Each picture is a function at the end of this file. Words come in pairs, English and Chinese. A
picture whose words would lie on one another, or outside, is an error.
"""
import os
import sys
from xml.sax.saxutils import escape

WIDTH = 880
LEFT = 124          # where time begins; the names of the rows are before it
BAR = 28            # the height of a bar
SMALL, NAME, TITLE = 12, 14, 16

STYLE = """
    .paper { fill: #ffffff; stroke: #d0d7de }
    text   { fill: #1f2328 }
    .name, .title { font-weight: bold }
    .note  { fill: #57606a }
    .bad   { fill: #cf222e }
    .lane  { stroke: #d0d7de }
    .way   { stroke: #424a53 } .head { fill: #424a53 }
    .badway { stroke: #cf222e } .badhead { fill: #cf222e }
    .span  { stroke: #57606a }
    .a     { fill: #cfe3fb; stroke: #0969da }
    .b     { fill: #c9efd3; stroke: #1a7f37 }
    .c     { fill: #e6d9fb; stroke: #8250df }
    .doubt { fill: #fbe6a8; stroke: #9a6700 }
    .wait  { fill: #ffffff; stroke: #8c959f; stroke-dasharray: 4 3 }
    .off   { fill: #eaeef2; stroke: #8c959f }
    .lost  { fill: #ffdcd7; stroke: #cf222e }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; stroke: #3d444d }
      text   { fill: #e6edf3 }
      .note  { fill: #9aa4af }
      .bad   { fill: #ff7b72 }
      .lane  { stroke: #30363d }
      .way   { stroke: #b1bac4 } .head { fill: #b1bac4 }
      .badway { stroke: #ff7b72 } .badhead { fill: #ff7b72 }
      .span  { stroke: #9aa4af }
      .a     { fill: #12355f; stroke: #58a6ff }
      .b     { fill: #123d20; stroke: #3fb950 }
      .c     { fill: #3a2366; stroke: #bc8cff }
      .doubt { fill: #4d3a05; stroke: #d29922 }
      .off   { fill: #21262d; stroke: #6e7681 }
      .wait  { fill: #0d1117; stroke: #6e7681 }
      .lost  { fill: #571a17; stroke: #ff7b72 }
    }
"""


def width_of(text, size):
    """A little more than any usual font needs: a Chinese character is as wide as it is high."""
    return sum(1.0 if ord(ch) > 0x2e80 else 0.58 for ch in text) * size


class Picture:
    def __init__(self, language, title, rows, step=86):
        self.language = language
        self.parts, self.boxes = [], []
        self.step, self.count = step, len(rows)
        self.height = 76 + step * (len(rows) - 1) + 38
        self.title = self.word(title)
        self.put('<rect class="paper" x="0.5" y="0.5" width="%d" height="%%d" rx="8"/>'
                 % (WIDTH - 1))
        self.text(16, 28, title, 'title', TITLE)
        for i, name in enumerate(rows):
            y = self.y(i)
            self.put('<line class="lane" x1="%d" y1="%d" x2="%d" y2="%d"/>'
                     % (LEFT, y, WIDTH - 16, y))
            self.text(16, y + 5, name, 'name', NAME)

    def y(self, row):
        return 76 + self.step * row

    def word(self, pair):
        return pair if isinstance(pair, str) else pair[self.language == 'zh']

    def put(self, part):
        self.parts.append('  ' + part)

    def text(self, x, y, pair, kind='', size=SMALL, anchor='start'):
        words = self.word(pair)
        wide = width_of(words, size)
        left = {'start': x, 'middle': x - wide / 2, 'end': x - wide}[anchor]
        self.boxes.append((left, y - size * 0.8, left + wide, y + size * 0.2, words))
        self.put('<text x="%g" y="%g" font-size="%d"%s%s>%s</text>' % (
            x, y, size, ' class="%s"' % kind if kind else '',
            '' if anchor == 'start' else ' text-anchor="%s"' % anchor, escape(words)))

    def bar(self, row, begin, end, kind, pair=''):
        y = self.y(row)
        self.put('<rect class="%s" x="%g" y="%g" width="%g" height="%d" rx="4"/>'
                 % (kind, begin, y - BAR / 2, end - begin, BAR))
        if pair:
            wide = width_of(self.word(pair), SMALL)
            if wide > end - begin - 4:
                raise ValueError('%s: %s does not fit' % (self.title, self.word(pair)))
            self.text((begin + end) / 2, y + 4, pair, '', SMALL, 'middle')

    def head(self, x1, y1, x2, y2, kind):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        points = ((x2, y2), (x2 - 8 * dx - 4 * dy, y2 - 8 * dy + 4 * dx),
                  (x2 - 8 * dx + 4 * dy, y2 - 8 * dy - 4 * dx))
        self.put('<polygon class="%s" points="%s"/>'
                 % (kind, ' '.join('%.1f,%.1f' % point for point in points)))

    def line(self, x1, y1, x2, y2, kind='way', dash=''):
        self.put('<line class="%s" x1="%g" y1="%g" x2="%g" y2="%g" stroke-width="1.5"%s/>'
                 % (kind, x1, y1, x2, y2, ' stroke-dasharray="%s"' % dash if dash else ''))

    def arrow(self, start, x1, end, x2, pair='', side='right', bad=False, at=0.5, way=1.0):
        """From row to row. at: where the words are; way: how far it comes before it is lost."""
        down = 1 if end > start else -1
        y1, y2 = self.y(start) + down * BAR / 2, self.y(end) - down * BAR / 2
        x2, y2 = x1 + (x2 - x1) * way, y1 + (y2 - y1) * way
        kind = 'bad' if bad else ''
        self.line(x1, y1, x2, y2, kind + 'way', '5 3' if bad else '')
        if way < 1.0:
            self.cross(x2, y2)
        else:
            self.head(x1, y1, x2, y2, kind + 'head')
        if pair:
            x, y = x1 + (x2 - x1) * at, y1 + (y2 - y1) * at + 4
            self.text(x + (8 if side == 'right' else -8), y, pair, kind, SMALL,
                      'start' if side == 'right' else 'end')

    def cross(self, x, y):
        self.line(x - 5, y - 5, x + 5, y + 5, 'badway')
        self.line(x - 5, y + 5, x + 5, y - 5, 'badway')

    def fault(self, row, x, pair, above=22):
        self.cross(x, self.y(row))
        self.text(x, self.y(row) - above, pair, 'bad', SMALL, 'middle')

    def span(self, row, begin, end, pair, dy):
        y = self.y(row) + dy
        self.line(begin, y - 5, begin, y + 5, 'span')
        self.line(end, y - 5, end, y + 5, 'span')
        self.line(begin, y, end, y, 'span')
        self.head(begin + 20, y, begin, y, 'note')
        self.head(end - 20, y, end, y, 'note')
        self.text((begin + end) / 2, y - 6 if dy < 0 else y + 15, pair, 'note', SMALL, 'middle')

    def moment(self, x, first, last, pair, side='right', dy=26):
        top, bottom = self.y(first) - 24, self.y(last) + dy
        self.height = max(self.height, bottom + 16)
        self.line(x, top, x, bottom, 'span', '2 3')
        self.text(x + (6 if side == 'right' else -6), bottom, pair, 'note', SMALL,
                  'start' if side == 'right' else 'end')

    def bus(self, x, start, ends, pair, side='right', away=True):
        """One line from a row to several at once; away: to them, otherwise back from them."""
        rows = sorted(list(ends) + [start])
        self.line(x, self.y(rows[0]), x, self.y(rows[-1]))
        for row in ends:
            y = self.y(row)
            if away:
                self.line(x, y, x + 20, y)
                self.head(x, y, x + 22, y, 'head')
            else:
                self.line(x - 20, y, x, y)
        y = self.y(start)
        if not away:
            inside = y + (BAR / 2 if ends[0] > start else -BAR / 2)
            self.head(x, self.y(ends[0]), x, inside, 'head')
        self.text(x + (8 if side == 'right' else -8),
                  y + (24 if ends[0] > start else -17), pair, '', SMALL,
                  'start' if side == 'right' else 'end')

    def note(self, pair):
        self.height += 24
        self.text(16, self.height - 16, pair, 'note')

    def check(self):
        for i, (x1, y1, x2, y2, words) in enumerate(self.boxes):
            if x1 < 8 or x2 > WIDTH - 8 or y2 > self.height - 4:
                raise ValueError('%s: "%s" lies outside' % (self.title, words))
            for u1, v1, u2, v2, others in self.boxes[:i]:
                if x1 < u2 and u1 < x2 and y1 < v2 and v1 < y2:
                    raise ValueError('%s: "%s" lies on "%s"' % (self.title, words, others))

    def svg(self):
        self.check()
        head = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" '
                'height="%d"\n     font-family="sans-serif" role="img">\n  <title>%s</title>\n'
                '  <style>%s  </style>\n'
                % (WIDTH, self.height, WIDTH, self.height, escape(self.title), STYLE))
        self.parts[0] = self.parts[0] % (self.height - 1)
        return head + '\n'.join(self.parts) + '\n</svg>\n'


# ---- the pictures ----

SERVER = ('server', '服务器')
WORKS = ('works', '工作')
WAITS = ('waits', '等待')
HELD_A = ('held by A, number 41', 'A 持有，编号 41')
HELD_B = ('held by B, number 43', 'B 持有，编号 43')


def overview(language):
    p = Picture(language, ('One job, three machines, no write that comes too late',
                           '一个任务，三台机器，迟到的写入被拒绝'),
                ['web1', 'web2', 'web3', ('database', '数据库')], 78)
    # First the writes, so that they pass behind what is in between.
    p.arrow(0, 200, 3, 200, ('write', '写入'), at=0.86)
    p.arrow(1, 400, 3, 400, ('write', '写入'), at=0.8)
    p.arrow(2, 640, 3, 640, ('write', '写入'), 'left')
    p.arrow(1, 720, 3, 720, ('42 is refused', '42 被拒绝'), bad=True, at=0.8)
    p.bar(0, 130, 270, 'a', ('works, number 41', '工作，编号 41'))
    p.fault(0, 270, ('crash', '崩溃'))
    p.bar(1, 160, 340, 'wait', WAITS)
    p.span(0, 276, 340, ('seconds', '几秒'), 26)
    p.bar(1, 345, 470, 'b', ('number 42', '编号 42'))
    p.bar(1, 470, 690, 'off', ('frozen', '被冻结'))
    p.bar(1, 690, 790, 'b', ('wakes, writes', '醒来，写入'))
    p.bar(1, 790, 860, 'lost', ('stops', '停止'))
    p.bar(2, 190, 590, 'wait', ('waits, next in the queue', '排队等待'))
    p.span(1, 476, 590, ('its lease ends', '租约到期'), 26)
    p.bar(2, 595, 860, 'c', ('works, number 43', '工作，编号 43'))
    p.bar(3, 200, 400, 'a', ('newest number: 41', '最新编号：41'))
    p.bar(3, 400, 640, 'b', ('newest number: 42', '最新编号：42'))
    p.bar(3, 640, 860, 'c', ('newest number: 43', '最新编号：43'))
    p.note(('The queue is in order, a crash costs seconds, and each grant has a larger number than '
            'the one before.',
            '先来后到；崩溃只耽误几秒；每次加锁的编号都比以前的大。'))
    return p


def handover(language):
    p = Picture(language, ('A lock is taken, and handed over', '加锁与交接'), ['A', SERVER, 'B'])
    p.arrow(0, 132, 1, 150, ('acquire', '加锁'), 'right')
    p.arrow(1, 196, 0, 214, ('yes: number 41', '成功：编号 41'))
    p.bar(0, 216, 462, 'a', WORKS)
    p.bar(1, 146, 476, 'a', HELD_A)
    p.arrow(2, 232, 1, 250, ('acquire', '加锁'), 'left')
    p.arrow(1, 270, 2, 288, ('wait: ticket 42', '等待：号码 42'))
    p.bar(2, 290, 498, 'wait', ('waits, is woken', '等待，被唤醒'))
    p.arrow(0, 460, 1, 478, ('release', '释放'))
    p.bar(1, 480, 806, 'b', HELD_B)
    p.arrow(1, 482, 2, 500, ('granted: 43', '授予：43'))
    p.bar(2, 502, 790, 'b', WORKS)
    p.arrow(2, 584, 1, 602, ('claim: the full ttl', '确认：完整的 ttl'))
    p.arrow(2, 788, 1, 806, ('release', '释放'), 'left')
    p.text(812, p.y(1) - 6, ('free', '空闲'), 'note')
    p.note(('One script ends the hold of A, makes the first living waiter the holder, and tells it. '
            'Nobody else is woken.',
            '同一个脚本结束 A 的持有，把锁交给第一个活着的等待者，并通知它。其他人不会被唤醒。'))
    return p


def crash(language):
    p = Picture(language, ('A crash, and the grace', '崩溃与宽限时间（grace）'), ['A', SERVER, 'B'])
    p.bar(0, 132, 300, 'a', WORKS)
    p.fault(0, 300, ('crash', '崩溃'))
    p.span(0, 310, 860, ('the rest of the ttl: nobody has to wait for it',
                         'ttl 剩下的时间：不必等它'), -8)
    p.arrow(0, 300, 1, 318, ('the connection closes', '连接关闭'), bad=True, at=0.3)
    p.bar(1, 132, 602, 'a', HELD_A)
    p.span(1, 346, 602, ('absent for the grace: 3 to 5 s', '缺席达到 grace：3 到 5 秒'), -24)
    p.bar(2, 190, 622, 'wait', WAITS)
    for x in (346, 411, 476, 541):
        p.arrow(2, x - 8, 1, x)
    p.text(328, p.y(2) - 42, ('looks, four times a second', '每秒看四次'), '', SMALL, 'end')
    p.bar(1, 606, 860, 'b', HELD_B)
    p.arrow(1, 606, 2, 624, ('granted: 43', '授予：43'))
    p.bar(2, 626, 860, 'b', WORKS)
    p.note(('A closed connection is evidence; silence is not. A holder that is only slow keeps its '
            'lock until its lease ends.',
            '连接关闭是证据，沉默不是。只是慢、暂停或没有声音的持有者，在租约结束前不会被接管。'))
    return p


def lost(language):
    p = Picture(language, ('A lost lock is told in time', '丢锁会及时通知'), ['A', SERVER, 'B'], 92)
    p.span(0, 150, 640, ('ttl - 1 % - 2 ms, from the moment of sending, by its own clock',
                         'ttl - 1 % - 2 ms，从发出时刻算起，按自己的时钟'), -22)
    p.bar(0, 132, 395, 'a', ('safe', '安全'))
    p.bar(0, 395, 640, 'doubt', ('in doubt', '存疑'))
    p.bar(0, 640, 860, 'lost', ('lost: told, stops', '丢锁：得到通知，停止'))
    p.arrow(0, 150, 1, 172, ('renew', '续期'))
    p.arrow(1, 212, 0, 234, ('yes', '成功'))
    p.arrow(0, 310, 1, 340, ('renew', '续期'), bad=True, way=0.55)
    p.arrow(0, 430, 1, 460, ('the network is cut', '网络中断'), bad=True, way=0.55)
    p.arrow(0, 560, 1, 590, '', bad=True, way=0.55)
    p.bar(1, 132, 712, 'a', HELD_A)
    p.span(1, 172, 712, ('ttl, from the moment of arrival, by the clock of the server',
                         'ttl，从到达时刻算起，按服务器的时钟'), 24)
    p.moment(640, 0, 2, ('A stops here ...', 'A 在这里停止……'), 'left', 34)
    p.moment(712, 1, 2, ('... before B can begin', '……B 才能开始'), 'right', 34)
    p.bar(1, 716, 860, 'b', ('held by B', 'B 持有'))
    p.bar(2, 190, 730, 'wait', WAITS)
    p.bar(2, 734, 860, 'b', WORKS)
    p.note(('The clock of A runs first, so it is first to end. A needs no answer to know that it '
            'has lost.', 'A 的时钟先开始，所以先结束。A 不需要任何应答就知道自己丢了锁。'))
    return p


def fencing(language):
    p = Picture(language, ('Fencing: the resource refuses who comes too late',
                           'Fencing：资源拒绝迟到的写入'),
                [('lock server', '锁服务器'), 'A', ('database', '数据库'), 'B'], 84)
    p.bar(0, 132, 420, 'a', HELD_A)
    p.bar(0, 424, 860, 'b', HELD_B)
    p.bar(1, 132, 280, 'a', WORKS)
    p.bar(1, 280, 640, 'off', ('paused: knows nothing, can be told nothing',
                               '被暂停：什么也不知道'))
    p.bar(1, 640, 860, 'lost', ('wakes up, and writes', '醒来就写'))
    p.moment(422, 0, 0, ('the lease ends', '租约结束'), 'right', 28)
    p.bar(3, 200, 438, 'wait', WAITS)
    p.bar(3, 442, 860, 'b', WORKS)
    p.bar(2, 132, 540, 'a', ('newest number: 41', '最新编号：41'))
    p.bar(2, 540, 860, 'b', ('newest number: 43', '最新编号：43'))
    p.arrow(1, 200, 2, 216, ('write, 41: done', '写入，41：成功'))
    p.arrow(3, 524, 2, 540, ('write, 43: done', '写入，43：成功'))
    p.arrow(1, 660, 2, 676, ('write, 41: refused', '写入，41：被拒绝'), bad=True)
    p.note(('The rule: accept the newest number that was seen, or a larger one. The check and the '
            'write are one step.',
            '规则：只接受不小于已见过的最大编号的写入。检查和写入必须是同一步。'))
    return p


def quorum(language):
    rows = ['A'] + [('server %d' % n, '服务器 %d' % n) for n in range(1, 6)] + ['B']
    p = Picture(language, ('A quorum of five: three must agree', '五个服务器的多数派：至少三个同意'),
                rows, 52)
    # First the lines that bars lie upon.
    p.bus(140, 0, (1, 2, 3, 4, 5), ('acquire', '加锁'))
    p.bus(446, 0, (1, 2, 3), '', away=False)
    p.line(500, p.y(6), 500, p.y(1))
    for row in (1, 2, 3, 4):
        p.head(500, p.y(row) + 40, 500, p.y(row) + BAR / 2, 'head')
    p.text(508, p.y(6) - 17, ('acquire', '加锁'))
    p.line(740, p.y(6), 740, p.y(1))
    p.text(734, p.y(6) - 17, ('acquire', '加锁'), '', SMALL, 'end')
    for row, number in ((1, '41'), (2, '44'), (3, '40')):
        p.bar(row, 164, 214, 'a', number)
    p.bus(236, 0, (1, 2, 3), ('three: enough', '三个：够了'), away=False)
    p.bus(336, 0, (1, 2, 3, 4), ('the largest: 44', '最大的：44'))
    for row in (1, 2, 3):
        p.bar(row, 360, 716, 'a', ('A, 44', 'A，44'))
    p.bar(4, 400, 716, 'a', ('A, 44 (slow)', 'A，44（慢）'))
    p.bar(5, 164, 860, 'off', ('down', '停机'))
    p.bar(0, 450, 690, 'a', ('works, number 44', '工作，编号 44'))
    p.bus(692, 0, (1, 2, 3, 4), ('release', '释放'))
    p.bar(6, 504, 736, 'wait', ('refused by four: waits', '四个拒绝：等待'))
    for row in (1, 2, 3, 4):
        p.head(740, p.y(row), 758, p.y(row), 'head')
        p.line(740, p.y(row), 752, p.y(row))
        p.bar(row, 760, 860, 'b', ('B, 45', 'B，45'))
    p.bar(6, 780, 860, 'b', WORKS)
    p.note(('Any two majorities share a server: so there is one holder at a time, and the number '
            'rises. Two of five may fail.',
            '任意两个多数派至少有一个共同的服务器：所以只有一个持有者，编号递增。五个里可以坏两个。'))
    return p


def breaking(language):
    p = Picture(language, ('Breaking a lock: the holder stops first', '强制收回锁：持有者先停止'),
                [('operator', '运维人员'), SERVER, 'A', 'B'])
    p.arrow(0, 190, 1, 208, ('break 41: the disk is full', '收回 41：磁盘满了'))
    p.bar(1, 132, 210, 'a', ('A, 41', 'A，41'))
    p.bar(1, 210, 556, 'doubt', ('A, 41: marked, not renewed any more', 'A，41：已标记，不再续期'))
    p.arrow(1, 214, 2, 232, ('ask me', '请询问'), 'left')
    p.arrow(2, 262, 1, 280, ('mine?', '还是我的？'), 'right', at=0.25)
    p.arrow(1, 340, 2, 358, ('no: broken', '不：已收回'))
    p.bar(2, 132, 360, 'a', WORKS)
    p.bar(2, 360, 540, 'lost', ('lost: stops', '丢锁：停止'))
    p.arrow(2, 538, 1, 556, ('release', '释放'), 'left', at=0.3)
    p.bar(1, 560, 860, 'b', HELD_B)
    p.arrow(1, 566, 0, 584, ('A let go after 12 ms', 'A 在 12 毫秒后放手'))
    p.arrow(1, 566, 3, 594, ('granted: 43', '授予：43'), at=0.8)
    p.bar(3, 190, 594, 'wait', WAITS)
    p.bar(3, 598, 860, 'b', WORKS)
    p.note(('If A does not answer, B waits until the lease of A has ended. There are never two that '
            'believe.', '如果 A 不应答，B 等到 A 的租约结束。任何时候都不会有两个持有者。'))
    return p


PICTURES = {'overview': overview, 'handover': handover, 'crash': crash, 'lost': lost,
            'fencing': fencing, 'quorum': quorum, 'break': breaking}


def main(argv):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = argv[1] if len(argv) > 1 else os.path.join(here, 'docs', 'pictures')
    os.makedirs(folder, exist_ok=True)
    for name, draw in PICTURES.items():
        for language, ending in (('en', '.svg'), ('zh', '.zh.svg')):
            with open(os.path.join(folder, name + ending), 'w', encoding='utf-8') as out:
                out.write(draw(language).svg())


if __name__ == '__main__':
    main(sys.argv)
