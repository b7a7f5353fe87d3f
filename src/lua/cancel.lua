-- SPDX-License-Identifier: MIT
-- cancel: give a token up for good, whether its request has arrived or not: it leaves the queue,
-- and what it holds goes to the next.
-- KEYS 1 lock  2 fencing counter  3 queue  4 tombstones  5 own
-- ARGV 1 token  2 how long to remember it, ms; 0: no copy of its request is under way
--      3 its member of the queue or ''  4 owner id or ''
-- Returns 1 it held the lock  0 it did not
-- Where several hold it, those who waited behind the leaving one may fit in now.
-- The tombstone stays, so that a copy of the request that is still under way takes nothing.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
--#include part/number.lua
--#include part/pass.lua
--#include part/entomb.lua
leaving = ARGV[1]
if ARGV[3] ~= '' then
  local youngest = redis.pcall('ZREVRANK', queue, ARGV[3])
  redis.pcall('ZREM', queue, ARGV[3])
  if youngest == 0 then
    local last = redis.call('ZRANGE', queue, -1, -1)[1]
    if last then
      local token = string.match(last, '^([^:]+)')
      tell(token, 'watch ' .. token)
    end
  end
end
local mine = ARGV[1] .. ':'
local function begins(key)
  local v = redis.pcall('GETRANGE', key, 0, #mine - 1)
  if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE') then error(v) end
  return v == mine
end
local value = redis.pcall('GETRANGE', lock, 0, 511)
local s = type(value) == 'string' and sharing(value)
for _, answer in ipairs({redis.pcall('ZCARD', holders), redis.pcall('HLEN', details)}) do
  if type(answer) == 'table' then s = nil end -- nobody's to give up
end
local held = begins(ARGV[4] == '' and lock or own)
if s then
  held = left_of(ARGV[1]) ~= nil
  dismiss(s, ARGV[1])
  dismiss_ended(s)
  pass(s)
elseif held then
  if ARGV[4] ~= '' then redis.call('DEL', own) end
  if ARGV[4] == '' or redis.pcall('GETRANGE', lock, 0, #ARGV[4]) == ARGV[4] then pass() end
end
if ARGV[2] ~= '0' then entomb(KEYS[4], ARGV[1], tonumber(ARGV[2])) end
return held and 1 or 0
