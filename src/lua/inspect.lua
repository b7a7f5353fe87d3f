-- SPDX-License-Identifier: MIT
-- inspect: what is there, changing nothing.
-- KEYS 1 lock  2 own  3 queue
-- ARGV 1 how many waiters, and how many holders, at the most
-- Returns {type, first bytes of the value, ttl left, own or '', server time in ms,
--          number of waiters, the first of them in order,
--          number of holders of a shared lock, the first of them: token, fence:grace:weight, ...}
local t = redis.call('TIME')
local most = tonumber(ARGV[1])
local value, own = redis.pcall('GETRANGE', KEYS[1], 0, 511),
  redis.pcall('GETRANGE', KEYS[2], 0, 127)
local function members(key)
  local count, first = redis.pcall('ZCARD', key), {}
  if type(count) ~= 'number' then return 0, first end
  for _, member in ipairs(redis.call('ZRANGE', key, 0, most - 1)) do
    first[#first + 1] = string.sub(member, 1, 511)
  end
  return count, first
end
local waiting, waiters = members(KEYS[3])
local holding, tokens = members(string.sub(KEYS[3], 1, -2) .. 'h')
local holders = {}
for _, token in ipairs(tokens) do
  local details = redis.pcall('HGET', string.sub(KEYS[3], 1, -2) .. 'd', token)
  holders[#holders + 1] = token
  holders[#holders + 1] = type(details) == 'string' and string.sub(details, 1, 99) or ''
end
return {
  redis.call('TYPE', KEYS[1]).ok,
  type(value) == 'string' and value or '',
  redis.call('PTTL', KEYS[1]),
  type(own) == 'string' and own or '',
  t[1] * 1000 + math.floor(t[2] / 1000),
  waiting, waiters, holding, holders,
}
