// SPDX-License-Identifier: MIT
// app.js - the page of `holdfast web`. What comes from the server was written by others: it is only
// ever set as text, never as markup. The drawing is markup, made and escaped by holdfast itself.
'use strict';

const $ = (id) => document.getElementById(id);
const rows = new Map();   // key -> its row
const opened = new Set(); // keys whose holders and waiters are shown
let state = null;
let paused = false;
let stream = null;        // the AbortController of the events
let heard = 0;            // when the last event came
let breaking = null;      // what the dialog asks about
let token = '';

// ---- words --------------------------------------------------------------------------------

function duration(ms) {
  if (ms === null) return '-';
  const s = Math.floor(ms / 1000);
  const two = (n) => String(n).padStart(2, '0');
  if (ms < 1000) return `${ms}ms`;
  if (s < 60) return `${s}.${Math.floor(ms % 1000 / 100)}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor(s / 3600) % 24)}h`;
}

// Control characters and those that turn the direction of writing are shown as what they are.
function clean(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
}

function shortName(p) {
  if (p.host === null) return 'owner ' + clean(p.owner || '?');
  return (p.user ? clean(p.user) + '@' : '') + clean(p.host) + (p.pid ? ':' + p.pid : '');
}

function longName(p) {
  let text = shortName(p);
  if (p.program) text += ', ' + clean(p.program);
  if (p.info) text += ' (' + clean(p.info) + ')';
  return text;
}

function facts(p, holds) {
  const list = [];
  if (p.age_ms !== null) list.push((holds ? 'held ' : 'waits ') + duration(p.age_ms));
  if (p.fence) list.push('fence ' + p.fence);
  if (p.permits) list.push(p.permits + (p.permits === 1 ? ' permit' : ' permits'));
  else if (p.mode) list.push(p.mode);
  if (p.lease_ms !== null) list.push('lease ' + duration(p.lease_ms));
  if (p.renewed_ms !== null) list.push('renewed ' + duration(p.renewed_ms) + ' ago');
  return list.join(', ');
}

// What tells locks apart: a name that is not UTF-8 is shown as another may be called.
function keyOf(l) {
  return l.name_hex ? 'hex ' + l.name_hex : 'name ' + l.name;
}

function kindOf(l) {
  const kind = l.kind || 'free';
  return l.slots ? `${kind} ${l.used}/${l.slots}` : kind;
}

// ---- elements -----------------------------------------------------------------------------

function element(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function set(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function drawSpark(svg, seen, count) {
  const key = seen.join(',');
  if (svg.dataset.key === key) return;
  svg.dataset.key = key;
  const most = Math.max(1, ...seen);
  const step = 120 / count;
  svg.replaceChildren(...seen.map((n, i) => {
    const bar = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    const height = n ? Math.max(2, 24 * n / most) : 0;
    bar.setAttribute('x', ((count - seen.length + i) * step).toFixed(1));
    bar.setAttribute('y', (24 - height).toFixed(1));
    bar.setAttribute('width', (step * 0.8).toFixed(1));
    bar.setAttribute('height', height.toFixed(1));
    return bar;
  }));
}

// ---- the table ----------------------------------------------------------------------------

const labels = ['', 'kind', 'holder', 'held', 'lease', 'waiting', 'longest wait', 'hand-overs/s'];
const columns = ['name', 'kind', 'holder', 'num', 'num', 'num waiting', 'num', 'num'];

function newRow(key) {
  const r = { tr: element('tr'), cells: [], more: null };
  for (const [i, label] of labels.entries()) {
    const td = element('td', columns[i]);
    td.dataset.label = label;
    r.cells.push(td);
    r.tr.append(td);
  }
  r.button = element('button');
  r.button.type = 'button';
  r.button.addEventListener('click', () => {
    if (!opened.delete(key)) opened.add(key);
    show();
  });
  r.cells[0].append(r.button);
  const rate = element('span', 'rate');
  r.spark = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  r.spark.setAttribute('class', 'spark');
  r.spark.setAttribute('viewBox', '0 0 120 24');
  r.spark.setAttribute('preserveAspectRatio', 'none');
  r.rate = element('span');
  rate.append(r.spark, r.rate);
  r.cells[7].append(rate);
  return r;
}

function fillRow(r, l) {
  const holder = l.holders.length
    ? shortName(l.holders[0]) + (l.holders_total > 1 ? ` +${l.holders_total - 1}` : '') : '-';
  const texts = [null, kindOf(l), holder, duration(l.hold_ms),
    l.held && l.ttl_ms === null ? 'for ever' : duration(l.ttl_ms), String(l.waiters_total),
    duration(l.wait_ms)];
  set(r.button, clean(l.name));
  r.button.setAttribute('aria-expanded', String(opened.has(keyOf(l))));
  for (let i = 1; i < texts.length; i++) {
    set(r.cells[i], texts[i]);
    r.cells[i].classList.toggle('empty', texts[i] === '-');
  }
  r.tr.classList.toggle('free', !l.held);
  r.tr.classList.toggle('waited', l.waiters_total > 0);
  r.tr.classList.toggle('stuck', l.deadlock === 'cycle');
  r.tr.classList.toggle('behind', l.deadlock === 'behind');
  set(r.rate, l.rate.toFixed(1));
  drawSpark(r.spark, l.seen, 30);
}

function partyItem(l, p, holds) {
  const li = element('li', '', longName(p));
  li.append(element('span', 'facts', facts(p, holds)));
  if (p.waits_for) li.append(element('span', 'warn', 'waits for ' + clean(p.waits_for)));
  if (p.present === false)
    li.append(element('span', 'warn', 'the server does not see its session'));
  if (holds && state.allow_break && p.fence) {
    const button = element('button', 'danger', 'Break ...');
    button.type = 'button';
    button.addEventListener('click', () => askBreak(l, p));
    li.append(button);
  }
  return li;
}

function partyList(l, title, parties, total, holds) {
  const div = element('div');
  const list = element('ol');
  div.append(element('h3', '', `${title} (${total})`));
  list.append(...parties.map((p) => partyItem(l, p, holds)));
  div.append(list);
  if (total > parties.length)
    div.append(element('span', 'facts', `and ${total - parties.length} more`));
  return div;
}

function fillMore(r, l) {
  const key = JSON.stringify([l.holders, l.waiters, l.waiters_total]);
  if (!r.more) {
    r.more = element('tr', 'more');
    r.box = element('td');
    r.box.colSpan = labels.length;
    r.more.append(r.box);
    r.key = '';
  }
  if (r.key === key) return;
  r.key = key;
  const parties = element('div', 'parties');
  parties.append(partyList(l, 'Holders', l.holders, l.holders_total, true),
    partyList(l, 'Waiters, in order', l.waiters, l.waiters_total, false));
  const had = r.box.contains(document.activeElement);
  r.box.replaceChildren(parties);
  if (had && r.box.querySelector('button')) r.box.querySelector('button').focus();
}

const sorts = {
  waiters: (a, b) => b.waiters_total - a.waiters_total || b.rate - a.rate,
  wait: (a, b) => (b.wait_ms ?? -1) - (a.wait_ms ?? -1),
  hold: (a, b) => (b.hold_ms ?? -1) - (a.hold_ms ?? -1),
  rate: (a, b) => b.rate - a.rate,
  name: () => 0,
};

function chosenLocks() {
  const text = $('filter').value.toLowerCase();
  const by = sorts[$('sort').value] || sorts.name;
  const name = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  return state.locks
    .filter((l) => !text || clean(l.name).toLowerCase().includes(text)
      || l.holders.some((p) => longName(p).toLowerCase().includes(text)))
    .sort((a, b) => (b.deadlock === 'cycle') - (a.deadlock === 'cycle') || by(a, b) || name(a, b));
}

function showLocks() {
  const list = chosenLocks();
  const wanted = [];
  const keys = new Set(list.map(keyOf));
  for (const key of rows.keys())
    if (!keys.has(key)) rows.delete(key);
  for (const l of list) {
    const key = keyOf(l);
    if (!rows.has(key)) rows.set(key, newRow(key));
    const r = rows.get(key);
    fillRow(r, l);
    wanted.push(r.tr);
    if (opened.has(key)) {
      fillMore(r, l);
      wanted.push(r.more);
    }
  }
  // Only what is not in its place is moved: a selection or a focus elsewhere stays.
  const body = $('rows');
  wanted.forEach((tr, i) => {
    if (body.children[i] !== tr) body.insertBefore(tr, body.children[i] || null);
  });
  while (body.children.length > wanted.length) body.lastChild.remove();
  $('locks').hidden = list.length === 0;
  const cut = state.locks_total - state.locks.length;
  $('none').hidden = !state.looked || (list.length > 0 && cut === 0);
  set($('none'), list.length === 0
    ? (state.locks_total ? 'No lock matches the filter.' : 'No lock is held.')
    : `The ${state.locks.length} hottest of ${state.locks_total} locks are shown.`);
}

// ---- the rest of the page -----------------------------------------------------------------

function showDeadlocks() {
  const box = $('deadlocks');
  const rounds = (state.graph && state.graph.deadlocks) || [];
  box.hidden = rounds.length === 0;
  const list = element('ul');
  for (const names of rounds)
    list.append(element('li', 'mono', [...names, names[0]].map(clean).join(' \u2192 ')));
  box.replaceChildren(element('h2', '', rounds.length === 1 ? 'Deadlock' : 'Deadlocks'), list);
}

let drawn = '';
function showGraph() {
  const text = state.drawing || '';
  $('nobody').hidden = text !== '' || !state.looked;
  if (text === drawn) return;
  drawn = text;
  if (!text) {
    $('graph').replaceChildren();
    return;
  }
  const read = new DOMParser().parseFromString(text, 'image/svg+xml');
  const whole = read.documentElement.nodeName === 'svg' && !read.querySelector('parsererror');
  $('graph').replaceChildren(whole ? document.importNode(read.documentElement, true)
    : 'The drawing cannot be shown.');
}

function show() {
  if (!state) return;
  set($('server'), clean(state.server || '') + (state.pattern ? ' ' + clean(state.pattern) : ''));
  // Before the first look nothing is known, and nothing is said.
  const known = (text) => (state.looked ? text : '-');
  set($('n-locks'), known(String(state.locks_total)));
  set($('n-held'), known(String(state.held)));
  set($('n-waiting'), known(String(state.waiting)));
  set($('n-rate'), known(state.rate.toFixed(1)));
  drawSpark($('spark'), state.seen, 30);
  document.title = (state.deadlocked ? 'DEADLOCK - ' : '') + 'holdfast'
    + (state.waiting ? ` (${state.waiting} waiting)` : '');
  showDeadlocks();
  showLocks();
  showGraph();
}

function showLive() {
  const quiet = heard ? Date.now() - heard : 0;
  const late = state ? 3 * state.every_ms + 2000 : 10000;
  let words = 'live', colour = 'good', alert = '';
  if (paused) {
    words = 'paused';
    colour = 'warn';
  } else if (!stream || !heard) {
    words = 'connecting';
    colour = 'warn';
  } else if (state && state.error) {
    words = state.partial ? 'not all is seen' : 'no answer';
    colour = 'bad';
    alert = state.partial ? 'Some locks are missing: ' + clean(state.error)
      : 'The lock server does not answer: ' + clean(state.error)
        + (state.looked ? '. What is shown is what was seen last.' : '');
  } else if (quiet > late) {
    words = 'no news for ' + duration(quiet);
    colour = 'bad';
  }
  set($('live'), words);
  $('dot').className = 'dot ' + colour;
  $('alert').hidden = !alert;
  set($('alert'), alert);
}

let saidTimer = 0;
function say(text) {
  set($('said'), text);
  $('said').hidden = false;
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => { $('said').hidden = true; }, 8000);
}

// ---- events -------------------------------------------------------------------------------

function headers() {
  return token ? { Authorization: 'Bearer ' + token } : {};
}

function take(block) {
  const data = block.split('\n').filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart()).join('\n');
  if (!data) return;
  heard = Date.now();
  state = JSON.parse(data);
  show();
  showLive();
}

// fetch() and not EventSource: that one cannot send the token in a header.
async function read(signal) {
  const answer = await fetch('/api/events', { headers: headers(), signal, cache: 'no-store' });
  $('login').hidden = answer.status !== 401;
  if (answer.status === 401) return 'login';
  if (!answer.ok) throw new Error(await answer.text());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '';;) {
    const { value, done } = await reader.read();
    if (done) return 'over';
    rest += value;
    const blocks = rest.split('\n\n');
    rest = blocks.pop();
    blocks.forEach(take);
  }
}

async function run() {
  if (stream || paused || document.hidden) return;
  const mine = stream = new AbortController();
  let pause = 500;
  while (stream === mine) {
    try {
      const how = await read(mine.signal);
      if (how === 'login') {
        if (stream === mine) stream = null;
        break;
      }
      pause = 500;
    } catch (e) {
      if (mine.signal.aborted) break;
    }
    heard = 0;
    showLive();
    await new Promise((done) => { setTimeout(done, pause); });
    pause = Math.min(2 * pause, 10000);
  }
  showLive();
}

function halt() {
  if (stream) stream.abort();
  stream = null;
}

// ---- breaking -----------------------------------------------------------------------------

function askBreak(l, p) {
  breaking = { name: l.name, name_hex: l.name_hex, fence: p.fence };
  set($('ask-name'), clean(l.name));
  set($('ask-holder'), longName(p));
  $('ask-yes').value = '';
  $('ask-go').disabled = true;
  $('ask').returnValue = '';
  $('ask').showModal();
}

async function sendBreak() {
  say('breaking ...');
  try {
    const answer = await fetch('/api/break', {
      method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' },
      body: JSON.stringify(breaking),
    });
    const { said } = await answer.json();
    say(clean(breaking.name) + ': ' + clean(said));
  } catch (e) {
    say('The page\u2019s server does not answer: the lock may be broken or not.');
  }
}

// ---- begin --------------------------------------------------------------------------------

function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) {
    sessionStorage.setItem('holdfast-token', given);
    history.replaceState(null, '', location.pathname);
  }
  token = sessionStorage.getItem('holdfast-token') || '';
  $('filter').addEventListener('input', show);
  $('sort').addEventListener('change', show);
  $('pause').addEventListener('click', () => {
    paused = !paused;
    set($('pause'), paused ? 'Go on' : 'Pause');
    if (paused) halt();
    else run();
    showLive();
  });
  $('login').addEventListener('submit', (event) => {
    event.preventDefault();
    token = $('token').value.trim();
    sessionStorage.setItem('holdfast-token', token);
    run();
  });
  $('ask-yes').addEventListener('input', () => {
    $('ask-go').disabled = $('ask-yes').value !== 'yes';
  });
  $('ask-yes').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    if (!$('ask-go').disabled) $('ask-go').click();
  });
  $('ask').addEventListener('close', () => {
    if ($('ask').returnValue === 'go' && $('ask-yes').value === 'yes') sendBreak();
  });
  // Nobody sees it: it costs nothing.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) halt();
    else run();
  });
  setInterval(showLive, 1000);
  run();
}

begin();
