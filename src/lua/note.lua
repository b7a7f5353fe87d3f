-- SPDX-License-Identifier: MIT
-- note: what has happened to a lock, for whoever watches now and for whoever asks later. Decides
-- nothing.
-- KEYS 1 log
-- ARGV 1 how many entries are kept, 0: write none  2 how long the log is kept, ms
--      3 channel, '': tell nobody  4 message,
--      then name, value, ... of the entry
-- Returns 1 done   0 the log's key holds something else
if ARGV[3] ~= '' then redis.pcall('PUBLISH', ARGV[3], ARGV[4]) end
if ARGV[1] == '0' then return 1 end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'stream' and kind ~= 'none' then return 0 end
local entry = {}
for i = 5, #ARGV do entry[#entry + 1] = ARGV[i] end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(entry))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
