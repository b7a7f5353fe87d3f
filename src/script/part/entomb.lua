-- remember for ms that a token was given up
local function entomb(tombs, token, ms)
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  redis.call('ZADD', tombs, now + ms, token)
  redis.call('ZREMRANGEBYSCORE', tombs, '-inf', now)
  redis.call('PEXPIREAT', tombs, redis.call('ZRANGE', tombs, -1, -1, 'WITHSCORES')[2])
end
