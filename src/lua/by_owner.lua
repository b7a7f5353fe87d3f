-- SPDX-License-Identifier: MIT
-- by_owner: what whoever knows the owner id may do with a lock.
-- KEYS 1 lock  2 fencing counter  3 queue  4 tombstones  5 own
-- ARGV 1 'release', 'extend' or 'check'  2 owner id  3 ttl ms  4 how long to remember a release, ms
-- Returns {1, ttl left, fencing number or 0} done
--         {0} another owner's, or nobody's: nothing changed
--         {2, ttl left, fencing number, text} it was broken: only a release is done for it
-- The id is a random token (the value is token:fence:grace, or it is one of several holders) or
-- caller-chosen (the whole value).
-- Extending never shortens: a handle elsewhere may count on what it has been told. Whoever asks for
-- less than is left sees it by the ttl left, as it was before.
-- A release leaves a tombstone, by which a keeper elsewhere knows that it was on purpose.
local lock, counter, queue, own = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
--#include part/number.lua
--#include part/pass.lua
--#include part/entomb.lua
local id = ARGV[2]
local value = redis.pcall('GETRANGE', lock, 0, 511)
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE') then return value end
if type(value) ~= 'string' or value == '' then return {0} end
local function broken(left, fence)
  if ARGV[1] == 'release' or not fence then return end
  local key, field = string.sub(queue, 1, -2) .. 'x', string.format('break:%.0f', fence)
  local text = redis.pcall('HGET', key, field)
  if type(text) == 'string' then return {2, left, fence, string.sub(text, 1, 500)} end
end
local s = sharing(value)
if s then
  local left, fence = left_of(id), number_of(id)
  if not left then return {0} end
  local told = broken(left, fence)
  if told then return told end
  if ARGV[1] == 'extend' and left < tonumber(ARGV[3]) then
    redis.call('ZADD', holders, string.format('%.0f', now() + ARGV[3]), id)
    settle(s)
  elseif ARGV[1] == 'release' then
    dismiss(s, id)
    pass(s)
    entomb(KEYS[4], id, math.max(tonumber(ARGV[4]), left))
  end
  return {1, left, fence or 0}
end
local record = redis.pcall('GETRANGE', own, 0, 127)
local token, fence
if value == id then
  if type(record) == 'string' then token, fence = string.match(record, '^([^:]+):(%d+)$') end
else
  token, fence = string.match(value, '^([0-9a-f]+%.%d+):(%d+):%d+$')
  if token ~= id or string.find(token, '.', 1, true) ~= 33 then return {0} end
end
local left = redis.call('PTTL', lock)
local told = broken(left, tonumber(fence))
if told then return told end
if ARGV[1] == 'extend' and left < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', lock, ARGV[3])
  if value == id then redis.call('PEXPIRE', own, ARGV[3]) end
elseif ARGV[1] == 'release' then
  redis.call('DEL', own)
  pass()
  if token then entomb(KEYS[4], token, math.max(tonumber(ARGV[4]), left)) end
end
return {1, left, tonumber(fence or 0)}
