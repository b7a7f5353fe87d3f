-- SPDX-License-Identifier: MIT
-- barrier_meet: arrive, once, however often the request arrives; or ask whether all are there.
-- KEYS as in part/meeting.lua
-- ARGV 1 generation  2 phase  3 token, '' an onlooker
--      4 its member of the parties: token:grace:pid:host
--      5 'arrive', 'try' (only if that completes it) or 'look'  6 how long to remember, ms
--      7 for how long those inside may stay before they leave, ms
-- Returns {1, index, arrived, total} wait
--         {2, index, arrived, total, member} wait; that one is missing
--         {3, index} all have met  {4, why} broken
--         {5} this generation is over, or full: not counted
--         {6, arrived, total} tried: not counted  {-3, value or nothing} not a barrier
-- It is complete only when all are counted and nobody is missing: not seen by the server, though it
-- was, or silent for half a minute. What that means for the others barrier_judge decides.
--#include part/wrong.lua
--#include part/meeting.lua
--#include part/done.lua
--#include part/ring.lua
--#include part/listen.lua
--#include part/verdict.lua
local phase, token, mode = ARGV[2], ARGV[3], ARGV[5]
local index = token ~= '' and done(phase .. token)
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if index == 1048575 then return {4, 'gone'} end
if generation ~= ARGV[1] then
  if index or token == '' or mode == 'look' then return verdict(phase, ARGV[1], index) end
  if not total and redis.call('EXISTS', KEYS[1]) == 1 then return {-3, meeting} end
  return {5}
end
local function value(key, n, ms)
  redis.call('SET', key, string.format('barrier.%.0f.%.0f:', total, n) .. generation .. ':0',
    'PX', ms)
end
local function missing()
  local all, theirs, silent = redis.call('ZRANGE', KEYS[3], 0, 999, 'WITHSCORES'), {}, nil
  for i = 1, #all, 2 do theirs[#theirs + 1] = channels .. all[i]:sub(1, 32) end
  local seen = listeners_of(unpack(theirs))
  for i = 1, #all, 2 do
    local score = tonumber(all[i + 1])
    if seen[i + 1] == 0 and not all[i]:find('^[^:]*:0:') then return all[i] end
    if score > 0 and score < now then silent = all[i] end
  end
  return silent
end
if not index and token ~= '' then
  if mode == 'look' then return verdict(phase, ARGV[1]) end
  if arrived >= total then return {5} end
  if mode == 'try' and (arrived + 1 < total or missing()) then return {6, arrived, total} end
  index, arrived = arrived, arrived + 1
end
if token ~= '' then
  remember(phase .. token, index, ARGV[6])
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + 30000), ARGV[4])
  local life = math.max(redis.call('PTTL', KEYS[1]), 60000)
  value(KEYS[1], arrived, life)
  redis.call('PEXPIRE', KEYS[3], life)
end
local who = missing()
if arrived == total and not who then
  remember(phase .. generation, 0, ARGV[6])
  if KEYS[10] then
    redis.call('ZUNIONSTORE', KEYS[10], 1, KEYS[3], 'WEIGHTS', 0)
    redis.call('PEXPIRE', KEYS[10], ARGV[7])
    value(KEYS[9], 0, ARGV[7])
  end
  redis.call('DEL', KEYS[1], KEYS[3], KEYS[7])
  ring(KEYS[4])
  return {3, index or 0}
end
if token ~= '' then listen(KEYS[4], token) end
if who then return {2, index or 0, arrived, total, who} end
redis.call('DEL', KEYS[7])
return {1, index or 0, arrived, total}
