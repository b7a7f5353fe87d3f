-- SPDX-License-Identifier: MIT
-- quorum_agree: one number for a lock that several servers of a quorum have granted to a token.
-- KEYS 1 lock  2 fencing counter  3 own  4 tombstones
-- ARGV 1 token  2 the number  3 ttl ms  4 caller-chosen owner id or ''
--      [5 'take': also where the lock is free, for a holder whom a majority has confirmed]
-- Returns {server time in ms, the number that it had here before}; the lease is ttl from now
--         {time, 0} not this token's lock here   {-3} or {-4}: a key holds something else
-- The counter is lifted to the number in any case, and never lowered: so two majorities cannot have
-- the same number, nor a later one the smaller. A larger number than the agreed one is told, so
-- that whoever asks does not count this server.
local lock, counter, own = KEYS[1], KEYS[2], KEYS[3]
local token, number, ttl, owner = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--#include part/wrong.lua
local value = redis.pcall('GETRANGE', lock, 0, 511)
if type(value) == 'table' then return wrong(value, -3) end
local seen = redis.pcall('GETRANGE', counter, 0, 31)
if type(seen) == 'table' then return wrong(seen, -4) end
if seen ~= '' and not string.match(seen, '^%-?%d+$') then return {-4} end
local record = value
if owner ~= '' then
  record = value == owner and redis.pcall('GETRANGE', own, 0, 127)
  if type(record) ~= 'string' then record = '' end
end
local before = 0
if string.sub(record, 1, #token + 1) == token .. ':' then
  before = tonumber(string.match(record, '^:(%d+)', #token + 1) or 0)
elseif ARGV[5] == 'take' and value == '' and redis.call('EXISTS', lock) == 0 then
  local given_up = redis.pcall('ZSCORE', KEYS[4], token)
  if type(given_up) == 'table' then return wrong(given_up, -3) end
  if not given_up then before = tonumber(number) end
end
if seen == '' or tonumber(seen) < tonumber(number) then redis.call('SET', counter, number) end
local t = redis.call('TIME')
t = t[1] * 1000 + math.floor(t[2] / 1000)
if before == 0 then return {t, 0} end
if owner ~= '' then
  redis.call('SET', lock, owner, 'PX', ttl)
  redis.call('SET', own, token .. ':' .. number, 'PX', ttl)
else
  redis.call('SET', lock, token .. ':' .. number .. ':0', 'PX', ttl)
end
return {t, before}
