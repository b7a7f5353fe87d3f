-- SPDX-License-Identifier: MIT
-- quorum_queue: wait in line for a lock on this server of a quorum, and look how long it is taken
-- for.
-- KEYS 1 lock  2 line
-- ARGV 1 token  2 for how long it has been waiting, ms
-- Returns {server time in ms, what the lock has left in ms, 0 free, how many stand before it}
--         {-3} the line's key holds something else
-- Nobody is granted anything by its place: who leaves the lock tells the first in line that it is
-- free (quorum_release), and takes it out of the line. By the time that they have waited all
-- servers have the same order, whenever each of them heard of it, and who must stand again loses
-- nothing.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
--#include part/wrong.lua
local added = redis.pcall('ZADD', KEYS[2], string.format('%.0f', now - tonumber(ARGV[2])), ARGV[1])
if type(added) == 'table' then return wrong(added, -3) end
redis.call('PEXPIRE', KEYS[2], 60000)
local left = redis.call('PTTL', KEYS[1])
if left == -1 then left = 60000 end
return {now, math.max(left, 0), redis.call('ZRANK', KEYS[2], ARGV[1])}
