-- keep: renew, set, leave or check the leases of several locks. Never creates a lock.
-- KEYS for each: lock, own, tombstones, absent mark
-- ARGV 1 'renew' (never shortens), 'set' (exactly), 'leave' (exactly, and never to be taken over)
--      or 'check'; for each: token, value of the lock, value of own or '', ttl ms
-- In the place of own there may be a key that shall last as long as the lock; then '+' for its value.
-- Returns {server time in ms, then for each: 1 ours  0 not ours  2 released on purpose elsewhere}
-- Whatever runs for the owner proves that it is there: the absent mark goes.
local t = redis.call('TIME')
local result = { t[1] * 1000 + math.floor(t[2] / 1000) }
local function holds(key, value)
  local v = redis.pcall('GETRANGE', key, 0, #value)
  if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE') then error(v) end
  return v == value
end
local function extend(key, ttl)
  if ARGV[1] ~= 'renew' or redis.call('PTTL', key) < tonumber(ttl) then
    redis.call('PEXPIRE', key, ttl)
  end
end
for i = 1, #KEYS / 4 do
  local lock, own, tombs = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1]
  local token, value, nonce, ttl = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1]
  local plain = nonce == '' or nonce == '+'
  local left_before = ARGV[1] == 'leave' and plain
    and holds(lock, string.match(value, '^(.*:)%d+$') .. '0')
  if left_before or holds(lock, value) and (plain or holds(own, nonce)) then
    redis.call('DEL', KEYS[4 * i])
    if ARGV[1] == 'leave' and plain then
      redis.call('SET', lock, string.match(value, '^(.*:)%d+$') .. '0', 'PX', ttl)
    elseif ARGV[1] ~= 'check' then
      extend(lock, ttl)
    end
    if ARGV[1] ~= 'check' and nonce ~= '' then extend(own, ttl) end
    result[i + 1] = 1
  else
    result[i + 1] = type(redis.pcall('ZSCORE', tombs, token)) == 'string' and 2 or 0
  end
end
return result
