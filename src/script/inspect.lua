-- inspect: what is there, changing nothing.
-- KEYS 1 lock  2 own
-- Returns {type, first bytes of the value, ttl left, own or '', server time in ms}
local t = redis.call('TIME')
local value, own = redis.pcall('GETRANGE', KEYS[1], 0, 511), redis.pcall('GETRANGE', KEYS[2], 0, 127)
return {
  redis.call('TYPE', KEYS[1]).ok,
  type(value) == 'string' and value or '',
  redis.call('PTTL', KEYS[1]),
  type(own) == 'string' and own or '',
  t[1] * 1000 + math.floor(t[2] / 1000),
}
