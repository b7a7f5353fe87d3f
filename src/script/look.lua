-- look: a waiter looks whether all is well, for itself and for those before it.
-- KEYS 1 lock  2 fencing counter  3 queue  4 reign  5 absent mark  6 own
-- ARGV 1 its member of the queue  2 the absence that it saw, or ''
--      3 for how long it has seen that one absence, by its own clock, ms
-- Returns {what, ms until the next look or 0, number of younger waiters, absence or value, position}
-- Dead ones behind the looker are dropped, so that it knows whether it is the youngest.
-- what: 1 wait  2 holder absent  3 not in the queue: join again
--       4 handed over to the looker: the second is the fencing number, to be claimed
-- Absence counts only within one reign of the server, after the holder was seen present in it or
-- was granted in it; it must last for the grace that the holder itself chose, by the mark's time
-- and by the looker's own clock, which starts anew with every new mark.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
--#include part/number.lua
--#include part/pass.lua
local member = ARGV[1]
local mine = string.match(member, '^[^:]+') .. ':'
local rank = redis.call('ZRANK', queue, member)
local value, left = redis.pcall('GETRANGE', lock, 0, 511), redis.call('PTTL', lock)
local function granted()
  for _, key in ipairs({lock, own}) do
    local v = redis.pcall('GETRANGE', key, 0, 511)
    if type(v) == 'string' and string.sub(v, 1, #mine) == mine then
      return {4, tonumber(string.match(v, '^:(%d+)', #mine) or 0), 0, '', 0}
    end
  end
end
local already = granted()
if already then return already end
if not rank then return {3, 0, 0, '', 0} end
for _ = 1, 100 do
  local last = redis.call('ZRANGE', queue, -1, -1)[1]
  if last == member or alive(string.match(last, '^[^:]*')) ~= false then break end
  redis.call('ZREM', queue, last)
end
local younger = redis.call('ZCARD', queue) - rank - 1
redis.call('PEXPIRE', queue, 60000)
if type(value) == 'table' then return {1, 0, younger, '', rank} end
if left == -2 then
  return pass() and granted() or {1, 50, younger, '', rank}
end
if left == -1 then
  redis.call('PEXPIRE', lock, 10000)
  left = 10000
end
local wait = {1, left + 1, younger, value, rank}
local token, fence, grace = value:match('^(%x+%.%d+):(%d+):(%d+)$')
grace = tonumber(grace or 0)
if grace == 0 then return wait end
local server, repl = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
if server.err or repl.err then return wait end
local reign = server:match('run_id:(%w+)') .. '.' .. repl:match('master_replid:(%w+)')
local name, floor = string.match(redis.call('GET', KEYS[4]) or '', '^(%S+) (%d+)$')
local granted_here = name == reign and tonumber(fence) >= tonumber(floor)
local mark, state, first = redis.pcall('GET', KEYS[5]), nil, nil
if type(mark) == 'string' then
  local s, f, of = string.match(mark, '^(%a+) (%d+) (.*)$')
  if of == value .. ' ' .. reign then state, first = s, tonumber(f) end
end
if alive(token) ~= false then
  if not granted_here then
    redis.call('SET', KEYS[5], 'present 0 ' .. value .. ' ' .. reign, 'PX', left)
  elseif state then
    redis.call('DEL', KEYS[5])
  end
  return wait
end
if not state and not granted_here then return wait end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if state ~= 'absent' then first = now end
local absence = string.format('%.0f ', first) .. value
local seen = ARGV[2] == absence and math.min(now - first, tonumber(ARGV[3])) or 0
if seen >= grace then
  redis.call('DEL', KEYS[5])
  return pass() and granted() or {1, 50, younger, '', rank}
end
redis.call('SET', KEYS[5], 'absent ' .. absence .. ' ' .. reign, 'PX', math.max(grace, 1000) * 2)
return {2, grace - seen + 1, younger, absence, rank}
