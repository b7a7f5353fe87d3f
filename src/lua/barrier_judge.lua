-- SPDX-License-Identifier: MIT
-- barrier_judge: a party is missing: since when, and is that long enough to break the meeting?
-- KEYS as in part/meeting.lua
-- ARGV 1 generation  2 phase  3 the missing one's member  4 the absence that we saw, or ''
--      5 for how long we have seen that one absence, by our own clock, ms
-- Returns {1} not missing, or it does not count  {2, absence, ms until it breaks}  {3, 0}  {4, why}
-- Absence counts only within one reign of the server, for a generation that began in it; it must
-- last for the grace that the party itself chose, or, when it is seen but silent, for 10 s, by the
-- mark's time and by the looker's own clock, which starts anew with every new mark.
--#include part/wrong.lua
--#include part/meeting.lua
--#include part/done.lua
--#include part/ring.lua
--#include part/verdict.lua
--#include part/break.lua
local who = ARGV[3]
if generation ~= ARGV[1] then return verdict(ARGV[2], ARGV[1]) end
local score = tonumber(redis.call('ZSCORE', KEYS[3], who) or 0)
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local grace, why = tonumber(string.match(who, '^[^:]*:(%d+)') or 0), 'absent'
if grace == 0 or alive(who) ~= false then
  if score == 0 or score >= now then
    redis.call('DEL', KEYS[7])
    return {1}
  end
  grace, why = 10000, 'silent'
end
local server, repl = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local reign = '-'
if not server.err and not repl.err then
  reign = server:match('run_id:(%w+)') .. '.' .. repl:match('master_replid:(%w+)')
end
local name, floor = string.match(redis.call('GET', KEYS[8]) or '', '^(%S+) (%d+) ?%d*$')
if why == 'absent' and (name ~= reign or tonumber(generation) <= tonumber(floor)) then
  if score == 0 or score >= now then return {1} end
  grace, why = 10000, 'silent'
end
local mark, first = redis.pcall('GET', KEYS[7]), nil
if type(mark) == 'string' then
  local f, of = string.match(mark, '^(%d+) (.*)$')
  if of == why .. ' ' .. who .. ' ' .. reign then first = tonumber(f) end
end
first = first or now
local absence = string.format('%.0f ', first) .. why .. ' ' .. who
local lasted = ARGV[4] == absence and math.min(now - first, tonumber(ARGV[5])) or 0
if lasted >= grace then return break_it(why, who) end
redis.call('SET', KEYS[7], absence .. ' ' .. reign, 'PX', math.max(grace, 1000) * 2)
return {2, absence, grace - lasted + 1}
