-- SPDX-License-Identifier: MIT
-- hello: the first script on every connection. Keeps the fencing counter ahead of all it ever gave.
-- KEYS 1 fencing counter  2 reign
-- ARGV 1 our session's channel, or '' when nobody asks  [2 'look': write nothing]
-- Returns {1 if a new reign began here, or is to begin; else 0;
--          how many listen on our channel, -1: not allowed;
--          ms since the counter began, -1: there is none yet; 1 if that was in this reign, else 0}
--         {-4} the counter holds something else   {-5, listeners} INFO is not allowed to this user
-- A reign is one life of one server as master: run_id and replid. What it did not write down
-- before it ended is unknown, also a lift of the counter itself; so each new reign begins a minute
-- ahead of the time, as a missing counter does: past all that can have been given. It has to begin
-- before the first number is taken; who only looks leaves that to others.
-- Stored: its name, the counter at its beginning, and the counter when that itself began, 0 if
-- nobody knows. The last two are the same where this life of the server began without a counter.
local counter = KEYS[1]
--#include part/session.lua
local function field(section, name)
  local info = redis.pcall('INFO', section)
  if type(info) ~= 'string' then return nil end
  return string.match(info, name .. ':(%w+)')
end
local listening = ARGV[1] ~= '' and (listeners_of(ARGV[1])[2] or -1) or 0
local run, repl = field('server', 'run_id'), field('replication', 'master_replid')
if not run or not repl then return {-5, listening} end
local reign = run .. '.' .. repl
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local function age(first)
  return math.max(0, math.floor((now + 60000000 - tonumber(first)) / 1000))
end
local stored = redis.pcall('GETRANGE', KEYS[2], 0, 199)
local name, floor, first
if type(stored) == 'string' then
  name, floor, first = string.match(stored, '^(%S+) (%d+) ?(%d*)$')
  if not name or #first > 16 or first == '' then first = '0' end
end
if name == reign then return {0, listening, age(first), floor == first and 1 or 0} end
local given = redis.pcall('GETRANGE', counter, 0, 31)
if type(given) == 'table' then
  if string.find(given.err, 'WRONGTYPE') then return {-4} end
  return given
end
if given == '' then given = nil end
if given and (not string.match(given, '^%-?%d+$') or tonumber(given) >= 9007199254740000) then
  return {-4}
end
first = first or '0'
if ARGV[2] == 'look' then
  if given then return {1, listening, age(first), 0} end
  return {1, listening, -1, 1}
end
local n = string.format('%.0f', math.max(given and tonumber(given) or 0, now + 60000000))
if not given then first = n end
redis.call('SET', counter, n)
redis.call('SET', KEYS[2], reign .. ' ' .. n .. ' ' .. first)
return {1, listening, age(first), given and 0 or 1}
