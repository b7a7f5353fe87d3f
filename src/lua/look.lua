-- SPDX-License-Identifier: MIT
-- look: a waiter looks whether all is well, for itself and for those before it.
-- KEYS 1 lock  2 fencing counter  3 queue  4 reign  5 absent marks  6 own
-- ARGV 1 its member of the queue  2 '1': a lock without a ttl may be given one
--      then for each absence that it has been seeing:
--      the absence, and for how long, by its own clock, ms
-- Returns {what, ms until the next look or 0, number of younger waiters, absences, position}
-- Dead ones behind the looker are dropped, so that it knows whether it is the youngest.
-- what: 1 wait  2 wait, and these holders are absent  3 not in the queue: join again
--       4 handed over to the looker: the second is the fencing number, to be claimed
-- Absence counts only within one reign of the server, after the holder was seen present in it or
-- was granted in it; it must last for the grace that the holder itself chose, by the mark's time
-- and by the looker's own clock, which starts anew with every new mark.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
--#include part/number.lua
--#include part/pass.lua
--#include part/mend.lua
local member = ARGV[1]
local me = string.match(member, '^[^:]+')
local rank = redis.call('ZRANK', queue, member)
local value, left = redis.pcall('GETRANGE', lock, 0, 511), redis.call('PTTL', lock)
local function granted()
  for _, key in ipairs({lock, own}) do
    local v = redis.pcall('GETRANGE', key, 0, 511)
    if type(v) == 'string' and string.sub(v, 1, #me + 1) == me .. ':' then
      return {4, tonumber(string.match(v, '^:(%d+)', #me + 1) or 0), 0, {}, 0}
    end
    local n = type(v) == 'string' and sharing(v) and number_of(me)
    if n then return {4, n, 0, {}, 0} end
  end
end
local already = granted()
if already then return already end
if not rank then return {3, 0, 0, {}, 0} end
for _ = 1, 100 do
  local last = redis.call('ZRANGE', queue, -1, -1)[1]
  if last == member or alive(string.match(last, '^[^:]*')) ~= false then break end
  redis.call('ZREM', queue, last)
end
local younger = redis.call('ZCARD', queue) - rank - 1
redis.call('PEXPIRE', queue, 60000)
local wait = {1, 0, younger, {}, rank}
if type(value) == 'table' then return wait end
if left == -2 then
  return pass() and granted() or {1, 50, younger, {}, rank}
end
if left == -1 and ARGV[2] == '1' then left = mend(value, 10000) end
wait[2] = left + 1
local seen = {}
for i = 3, #ARGV, 2 do seen[ARGV[i]] = tonumber(ARGV[i + 1]) end
local server, repl = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local reign = not server.err and not repl.err
  and server:match('run_id:(%w+)') .. '.' .. repl:match('master_replid:(%w+)')
local name, floor = string.match(redis.call('GET', KEYS[4]) or '', '^(%S+) (%d+) ?%d*$')
local function mark(of, text, ms)
  if redis.call('TYPE', KEYS[5]).ok ~= 'hash' then redis.call('DEL', KEYS[5]) end
  redis.call('HSET', KEYS[5], of, text .. ' ' .. reign)
  redis.call('PEXPIRE', KEYS[5], math.max(redis.call('PTTL', KEYS[5]), ms))
end
-- is this holder gone? of: what its mark is about
local function gone(token, fence, grace, of)
  if grace == 0 or not reign then return false end
  local found = redis.pcall('HGET', KEYS[5], of)
  local state, first, at = string.match(type(found) == 'string' and found or '',
    '^(%a+) (%d+) (%S+)$')
  if at ~= reign then state = nil end
  local granted_here = name == reign and tonumber(fence) > tonumber(floor)
  if alive(token) ~= false then
    if not granted_here then
      mark(of, 'present 0', left)
    elseif state then
      redis.call('HDEL', KEYS[5], of)
    end
    return false
  end
  if not state and not granted_here then return false end
  if state ~= 'absent' then first = now() end
  local absence = string.format('%.0f ', first) .. of
  local ms = math.min(now() - first, seen[absence] or 0)
  if ms >= grace then return true end
  mark(of, string.format('absent %.0f', first), math.max(grace, 1000) * 2)
  wait[1] = 2
  table.insert(wait[4], absence)
  wait[2] = math.min(wait[2], grace - ms + 1)
  return false
end
local s = sharing(value)
if s then
  dismiss_ended(s)
  wait[2] = (redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] or 0) - now() + 1
  local looked = {}
  local function look_at(token)
    local fence, grace = string.match(redis.call('HGET', details, token) or '', '^(%d+):(%d+):')
    if fence and not looked[token] and gone(token, fence, tonumber(grace), token) then
      dismiss(s, token)
    end
    looked[token] = true
  end
  -- whom the looker has seen absent, then a hundred of all, others each time
  for i = 3, #ARGV, 2 do look_at(string.match(ARGV[i], '^%d+ (.*)$') or '') end
  local pages = math.ceil(math.max(redis.call('ZCARD', holders), 1) / 100)
  local page = math.floor(now() / 250) % pages * 100
  for _, token in ipairs(redis.call('ZRANGE', holders, page, page + 99)) do look_at(token) end
  pass(s)
  return granted() or wait
end
local token, fence, grace = value:match('^(%x+%.%d+):(%d+):(%d+)$')
if token and gone(token, fence, tonumber(grace), value) then
  redis.call('DEL', KEYS[5])
  return pass() and granted() or {1, 50, younger, {}, rank}
end
return wait
