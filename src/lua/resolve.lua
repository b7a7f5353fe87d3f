-- SPDX-License-Identifier: MIT
-- resolve: did an update take place whose answer was lost? If not, it never will.
-- KEYS 1 mark
-- ARGV 1 the update's number  2 ms to remember the refusal
-- Returns 1 it did  0 it did not
-- The update writes its number into the mark, in the same transaction, and watches the mark:
-- changing it here makes a transaction fail that is still under way. Asked again it gives the same
-- answer.
local mark = redis.pcall('GET', KEYS[1])
if mark == ARGV[1] then return 1 end
redis.call('SET', KEYS[1], 'void ' .. ARGV[1], 'PX', ARGV[2])
return 0
