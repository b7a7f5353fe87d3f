-- SPDX-License-Identifier: MIT
-- quorum_release: a token holds nothing on this server of a quorum any more, nor stands in line.
-- KEYS 1 lock  2 own  3 tombstones  [4 line  5 fencing counter: if the lock is free then, tell the
--      first who stands in line]
-- ARGV 1 token  2 how long to remember it, ms; 0: no copy of its requests is under way
--      3 caller-chosen owner id or ''
-- Returns 1 it held the lock  0 it did not
-- Who is told leaves the line: a second release tells the next one, whatever became of the first.
-- Nobody is told who does not listen; they are dropped, 100 at the most.
local lock, own, owner, line = KEYS[1], KEYS[2], ARGV[3], KEYS[4]
local mine = ARGV[1] .. ':'
--#include part/entomb.lua
local function begins(key)
  local v = redis.pcall('GETRANGE', key, 0, #mine - 1)
  if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE') then error(v) end
  return v == mine
end
local held = begins(owner == '' and lock or own)
if held and owner ~= '' then
  redis.call('DEL', own)
  if redis.pcall('GETRANGE', lock, 0, #owner) == owner then redis.call('DEL', lock) end
elseif held then
  redis.call('DEL', lock)
end
if ARGV[2] ~= '0' then entomb(KEYS[3], ARGV[1], tonumber(ARGV[2])) end
if line and redis.call('EXISTS', line) == 1 then
  redis.pcall('ZREM', line, ARGV[1])
  for step = 1, redis.call('EXISTS', lock) == 0 and 100 or 0 do
    local first = redis.pcall('ZRANGE', line, 0, 0)[1]
    if not first then break end
    local channel = string.sub(KEYS[5], 1, -6) .. 's:' .. string.sub(first, 1, 32)
    local asked = redis.pcall('PUBSUB', 'NUMSUB', channel)
    redis.call('ZREM', line, first)
    if asked.err or asked[2] > 0 then
      redis.pcall('PUBLISH', channel, 'free ' .. first)
      break
    end
  end
end
return held and 1 or 0
