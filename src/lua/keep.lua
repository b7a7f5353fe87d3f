-- SPDX-License-Identifier: MIT
-- keep: renew, set, leave or check the leases of several locks. Never creates a lock.
-- KEYS for each: lock, own, tombstones, absent mark
-- ARGV 1 'renew' (never shortens), 'set' (exactly), 'leave' (exactly, and never to be taken over)
--      or 'check'; for each: token, value of the lock or 'shared.NUMBER', value of own or '',
--      ttl ms
-- In the place of own there may be a key that shall last as long as the lock; then '+' for its
-- value.
-- Returns {server time in ms, then for each: 1 ours  0 not ours  2 released on purpose elsewhere
--          3 broken; then what is written beside a lock for its holder: which of them, the text}
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
-- What others wrote for holders, by their numbers: as a rule there is nothing, and that is asked
-- for all at once. A lock that was broken is not kept, and who asks is told.
local breaks, notes = {}, {}
for i = 1, #KEYS / 4 do breaks[i] = string.sub(KEYS[4 * i], 1, -7) .. 'x' end
local any = redis.pcall('EXISTS', unpack(breaks))
any = type(any) == 'number' and any > 0
local function note(i, kind, fence)
  local text = redis.pcall('HGET', breaks[i], kind .. ':' .. fence)
  if type(text) ~= 'string' then return false end
  notes[#notes + 1] = i
  notes[#notes + 1] = kind .. ' ' .. string.sub(text, 1, 500)
  return true
end
local function broken(i, fence)
  if not fence or not note(i, 'break', fence) then
    if fence then note(i, 'ask', fence) end
    return false
  end
  redis.pcall('HSET', breaks[i], 'told:' .. fence, '1')
  return true
end
-- One of several holders: the lock lives as long as the last of them. A downgrade of which nobody
-- heard may not have come: then the token still has the lock alone.
local function keep_share(lock, base, token, number, ttl)
  local holders, details = base .. 'h', base .. 'd'
  local value = redis.pcall('GETRANGE', lock, 0, 511)
  if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE') then error(value) end
  if type(value) == 'table' then return false end
  if string.sub(value, 1, #token + 1) == token .. ':' then
    if string.match(value, ':(%d+):%d+$') ~= number then return false end
    redis.call('DEL', base .. 'absent')
    if ARGV[1] == 'leave' then
      redis.call('SET', lock, string.match(value, '^(.*:)%d+$') .. '0', 'PX', ttl)
    elseif ARGV[1] ~= 'check' then
      extend(lock, ttl)
    end
    return true
  end
  local ends = string.find(value, '^shared%.') and redis.pcall('ZSCORE', holders, token)
  if type(ends) ~= 'string' or tonumber(ends) <= result[1] then return false end
  local detail = redis.pcall('HGET', details, token)
  if type(detail) == 'string' and string.match(detail, '^%d+') ~= number then return false end
  redis.pcall('HDEL', base .. 'absent', token)
  if ARGV[1] == 'check' then return true end
  if ARGV[1] ~= 'renew' or tonumber(ends) < result[1] + ttl then
    redis.call('ZADD', holders, string.format('%.0f', result[1] + ttl), token)
    local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
    for _, key in ipairs({lock, holders, details}) do
      redis.call('PEXPIRE', key, string.format('%.0f', math.max(last - result[1], 1)))
    end
    -- of a semaphore: what was decided about its limit lasts a week longer than its use
    if not string.find(value, '^shared%.0%.') then
      redis.pcall('PEXPIRE', base .. 's', 604800000)
    end
  end
  if ARGV[1] == 'leave' then
    local weight = string.match(type(detail) == 'string' and detail or '', '^%d+:%d+:(%d+)$')
    if weight then redis.call('HSET', details, token, number .. ':0:' .. weight) end
  end
  return true
end
for i = 1, #KEYS / 4 do
  local lock, own, tombs = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1]
  local token, value, nonce, ttl = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1]
  local plain = nonce == '' or nonce == '+'
  local share = nonce == '' and string.match(value, '^shared%.(%d+)$')
  -- one that was left behind by a request of which nobody heard has no grace any more
  local ours = not share and holds(lock, value) and (plain or holds(own, nonce))
  local bare = plain and not share and not ours and string.match(value, '^(.*:)%d+$')
  ours = ours or (bare and holds(lock, bare .. '0'))
  if any and broken(i, share or string.match(plain and value or nonce,
    plain and ':(%d+):%d+$' or ':(%d+)$')) then
    result[i + 1] = 3
  elseif share and keep_share(lock, string.sub(own, 1, -4), token, share, tonumber(ttl)) then
    result[i + 1] = 1
  elseif ours then
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
for _, item in ipairs(notes) do result[#result + 1] = item end
return result
