-- acquire: take a lock for a token, once, however often the request arrives.
-- KEYS 1 lock  2 fencing counter  3 tombstones  [4 own]
-- ARGV 1 token  2 ttl ms  3 grace ms  [4 caller-chosen owner id]
-- Returns the fencing number: granted, or granted before to the same token (its ttl is then
-- refreshed); or {-1, ttl left, value} held by another   {-2} this token was given up
-- {-3} not a lock   {-4} the counter holds something else
-- The lock is never overwritten; nothing is written before every type is known. A caller-chosen
-- id becomes the whole value; it is not unique to one hold, so own keeps token:fence.
local ttl, owner = ARGV[2], ARGV[4]
local function wrong(e, code)
  if string.find(e.err, 'WRONGTYPE') or string.find(e.err, 'integer') or string.find(e.err, 'overflow') then
    return {code}
  end
  return e
end
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then
  local given_up = redis.pcall('ZSCORE', KEYS[3], ARGV[1])
  if type(given_up) == 'table' then return wrong(given_up, -3) end
  if given_up then return {-2} end
  local value = redis.pcall('GETRANGE', KEYS[1], 0, 511)
  if type(value) == 'table' then return wrong(value, -3) end
  local left = redis.call('PTTL', KEYS[1])
  if left ~= -2 then
    local record, mine = value, ARGV[1] .. ':'
    if owner then record = value == owner and redis.pcall('GETRANGE', KEYS[4], 0, 127) end
    if type(record) == 'string' and string.sub(record, 1, #mine) == mine then
      if left < tonumber(ttl) then
        redis.call('PEXPIRE', KEYS[1], ttl)
        if owner then redis.call('PEXPIRE', KEYS[4], ttl) end
      end
      return tonumber(string.match(record, '^:(%d+)', #mine) or 0)
    end
    if left == -1 then
      left = math.max(tonumber(ttl), 10000)
      redis.call('PEXPIRE', KEYS[1], left)
    end
    return {-1, left, value}
  end
end
local n = redis.pcall('INCR', KEYS[2])
if type(n) == 'table' then return wrong(n, -4) end
if n < 1600000000000000 then
  local t = redis.call('TIME')
  n = (t[1] + 60) * 1000000 + t[2]
  redis.call('SET', KEYS[2], string.format('%.0f', n))
elseif n > 9007199254740000 then
  redis.call('DECR', KEYS[2])
  return {-4}
end
if owner then
  redis.call('SET', KEYS[1], owner, 'PX', ttl)
  redis.call('SET', KEYS[4], ARGV[1] .. string.format(':%.0f', n), 'PX', ttl)
else
  redis.call('SET', KEYS[1], ARGV[1] .. string.format(':%.0f:', n) .. ARGV[3], 'PX', ttl)
end
return n
