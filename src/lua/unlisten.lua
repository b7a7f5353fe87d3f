-- SPDX-License-Identifier: MIT
-- unlisten: somebody does not wait for news of a key any more.
-- KEYS 1 listeners
-- ARGV 1 token
-- Returns 1 it stood on the list  0 it did not
local gone = redis.pcall('ZREM', KEYS[1], ARGV[1])
return gone == 1 and 1 or 0
