-- inspect: what is there, changing nothing.
-- KEYS 1 lock  2 own  3 queue
-- ARGV 1 how many waiters at the most
-- Returns {type, first bytes of the value, ttl left, own or '', server time in ms,
--          number of waiters, the first of them in order}
local t = redis.call('TIME')
local value, own = redis.pcall('GETRANGE', KEYS[1], 0, 511), redis.pcall('GETRANGE', KEYS[2], 0, 127)
local count, first = redis.pcall('ZCARD', KEYS[3]), {}
if type(count) == 'number' and count > 0 then
  for _, member in ipairs(redis.call('ZRANGE', KEYS[3], 0, tonumber(ARGV[1]) - 1)) do
    first[#first + 1] = string.sub(member, 1, 511)
  end
end
return {
  redis.call('TYPE', KEYS[1]).ok,
  type(value) == 'string' and value or '',
  redis.call('PTTL', KEYS[1]),
  type(own) == 'string' and own or '',
  t[1] * 1000 + math.floor(t[2] / 1000),
  type(count) == 'number' and count or 0,
  first,
}
