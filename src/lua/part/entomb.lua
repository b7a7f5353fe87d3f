-- SPDX-License-Identifier: MIT
-- remember for ms that a token was given up
local function entomb(tombs, token, ms)
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  redis.call('ZADD', tombs, string.format('%.0f', now + ms), token)
  redis.call('ZREMRANGEBYSCORE', tombs, '-inf', string.format('%.0f', now))
  redis.call('PEXPIRE', tombs, math.max(redis.call('PTTL', tombs), ms))
end
