-- by_owner: what whoever knows the owner id may do with a lock.
-- KEYS 1 lock  2 tombstones  3 own
-- ARGV 1 'release', 'extend' or 'check'  2 owner id  3 ttl ms  4 how long to remember a release, ms
-- Returns {1, ttl left, fencing number or 0} done  {0} another owner's, or nobody's: nothing changed
-- The id is a random token (the value is token:fence:grace) or caller-chosen (the whole value).
-- Extending never shortens: a handle elsewhere may count on what it has been told.
-- A release leaves a tombstone, by which a keeper elsewhere knows that it was on purpose.
local id = ARGV[2]
local value = redis.pcall('GETRANGE', KEYS[1], 0, 511)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE') then return value end
if type(value) ~= 'string' or value == '' then return {0} end
local own = redis.pcall('GETRANGE', KEYS[3], 0, 127)
local token, fence
if value == id then
  if type(own) == 'string' then token, fence = string.match(own, '^([^:]+):(%d+)$') end
else
  token, fence = string.match(value, '^([0-9a-f]+%.%d+):(%d+):%d+$')
  if token ~= id or string.find(token, '.', 1, true) ~= 33 then return {0} end
end
local left = redis.call('PTTL', KEYS[1])
if ARGV[1] == 'extend' and left < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if value == id then redis.call('PEXPIRE', KEYS[3], ARGV[3]) end
elseif ARGV[1] == 'release' then
  redis.call('DEL', KEYS[1], KEYS[3])
  if token then
    local t = redis.call('TIME')
    local now = t[1] * 1000 + math.floor(t[2] / 1000)
    local ms = math.max(tonumber(ARGV[4]), left)
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + ms), token)
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
    redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[2]), ms))
  end
end
return {1, left, tonumber(fence or 0)}
