-- SPDX-License-Identifier: MIT
-- release: give a lock back, if its value still is exactly ours, and hand it to who waits first.
-- KEYS 1 lock  [2 fencing counter; without: that of the prefix "lock:"]
--      [3 queue  4 own; without: they are {lock}:...]
-- ARGV 1 value  [2 value of own]
-- Returns 1 released  0 not ours: nothing was changed
-- One byte more than the value is read: a longer one cannot pass for ours, nor cost much.
local lock, counter, queue, own = KEYS[1], KEYS[2] or 'lock:holdfast:fence', KEYS[3], KEYS[4]
if not queue then queue, own = '{' .. lock .. '}:q', '{' .. lock .. '}:own' end
local value = redis.pcall('GETRANGE', lock, 0, #ARGV[1])
if value ~= ARGV[1] then
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE') then return value end
  return 0
end
if ARGV[2] then
  if redis.pcall('GETRANGE', own, 0, #ARGV[2]) ~= ARGV[2] then return 0 end
  redis.call('DEL', own)
end
-- In a cluster the channel is sharded: that is left to the functions below.
local sharded, first = string.sub(counter, -7) == '}:fence', nil
if sharded then
  first = redis.pcall('ZRANGE', queue, 0, 0)
else
  first = redis.pcall('ZPOPMIN', queue)
end
if not first.err and not first[1] then
  redis.call('DEL', lock)
  return 1
end
-- As a rule the first waiter lives and wants the lock alone, under no name of its own: that needs
-- none of the functions below, which the server would make anew each time.
if first[1] and not sharded then
  local token, grace, claim, nonce = string.match(first[1], '^([^:]+):(%d+):(%d+):(%x+):$')
  if token then
    local channel = string.sub(counter, 1, -6) .. 's:' .. string.sub(token, 1, 32)
    local present = redis.pcall('PUBSUB', 'NUMSUB', channel)
    local n = not present.err and present[2] > 0 and redis.pcall('INCR', counter)
    if type(n) == 'number' and n >= 1600000000000000 and n <= 9007199254740000 then
      n = string.format('%.0f', n)
      redis.call('SET', lock, token .. ':' .. n .. ':' .. grace, 'PX', claim)
      redis.pcall('PUBLISH', channel,
        'granted ' .. token .. ' ' .. n .. ' ' .. nonce .. ' ' .. lock)
      return 1
    end
  end
  redis.call('ZADD', queue, first[2], first[1])
  redis.call('PEXPIRE', queue, 60000)
end
--#include part/number.lua
--#include part/pass.lua
pass()
return 1
