-- SPDX-License-Identifier: MIT
-- acquire: take a lock for a token, once, however often the request arrives; or join its queue.
-- KEYS 1 lock  [2 fencing counter; without: that of the prefix "lock:"]
--      [3 queue  4 tombstones  5 own; without: they are {lock}:...]
-- ARGV 1 token  2 ttl ms  3 grace ms  [4 claim window ms, 0: do not wait]
--      [5 nonce of the waiter, hex]
--      [6 '1': a lock without a ttl may be given one; without: if it waits]
--      [7 old ticket, 0: none]  [8 caller-chosen owner id or '']
-- Returns the fencing number: granted, or granted before to the same token;
-- or {-1, ttl left or 0, value or '', ticket} held by another; with a ticket: in the queue now
-- {-2} this token was given up   {-3} not a lock   {-4} the counter holds something else
-- {-6, number} handed over to this token before, or broken since: to be claimed
-- The lock is never overwritten; nothing is written before every type is known. A caller-chosen
-- id becomes the whole value; it is not unique to one hold, so own keeps token:fence.
-- What is asked most often comes first, and without the functions that the rest needs: a server
-- makes them anew for each call.
local lock, counter = KEYS[1], KEYS[2] or 'lock:holdfast:fence'
local queue, tombs, own = KEYS[3], KEYS[4], KEYS[5]
local token, ttl, owner = ARGV[1], ARGV[2], ARGV[8]
if not queue then
  queue, tombs, own = '{' .. lock .. '}:q', '{' .. lock .. '}:t', '{' .. lock .. '}:own'
end
if owner == '' then owner = nil end
local n
-- tombstones count three times: below that there are none
local there = redis.call('EXISTS', lock, queue, tombs, tombs, tombs)
if there == 0 then
  n = redis.pcall('INCR', counter)
  if not owner and type(n) == 'number' and n >= 1600000000000000 and n <= 9007199254740000 then
    redis.call('SET', lock, token .. string.format(':%.0f:', n) .. ARGV[3], 'PX', ttl)
    return n
  end
elseif there < 3 and not owner and tonumber(ARGV[4] or 0) > 0 and tonumber(ARGV[7] or 0) == 0 then
  -- one of ours has it alone, and we come for the first time: behind all others
  local value = redis.pcall('GETRANGE', lock, 0, 511)
  if type(value) == 'string' and string.find(value, '^%x+%.%d+:%d+:')
    and string.sub(value, 1, #token + 1) ~= token .. ':' then
    local ticket = redis.pcall('INCR', counter)
    if type(ticket) == 'number' and ticket >= 1600000000000000 and ticket <= 9007199254740000 then
      local member = token .. ':' .. ARGV[3] .. ':' .. ARGV[4] .. ':' .. ARGV[5] .. ':'
      local new = redis.pcall('ZADD', queue, 'NX', string.format('%.0f', ticket), member)
      if type(new) == 'number' then
        if new == 0 then ticket = tonumber(redis.call('ZSCORE', queue, member)) end
        -- who begins the queue gives it a ttl; of the others one in four, by its nonce, prolongs it
        if there == 1 or (string.byte(ARGV[5]) or 0) < 52 then
          redis.call('PEXPIRE', queue, 60000)
        end
        return {-1, 0, '', ticket}
      end
    end
  end
end
--#include part/wrong.lua
--#include part/number.lua
if there > 0 then
  --#include part/pass.lua
  --#include part/join.lua
  --#include part/mend.lua
  --#include part/broken.lua
  local given_up = redis.pcall('ZSCORE', tombs, token)
  local value = redis.pcall('GETRANGE', lock, 0, 511)
  local waiting = redis.pcall('ZCARD', queue)
  if type(given_up) == 'table' then return wrong(given_up, -3) end
  if type(value) == 'table' then return wrong(value, -3) end
  if type(waiting) == 'table' then return wrong(waiting, -3) end
  if given_up then return {-2} end
  local left, claim = redis.call('PTTL', lock), tonumber(ARGV[4] or 0)
  local member = token .. ':' .. ARGV[3] .. ':' .. claim .. ':' .. (ARGV[5] or '')
    .. ':' .. (owner or '')
  local mine, mends = token .. ':', ARGV[6] or (claim > 0 and '1' or '0')
  if left ~= -2 then
    local record = value
    if owner then record = value == owner and redis.pcall('GETRANGE', own, 0, 127) end
    if type(record) == 'string' and string.sub(record, 1, #mine) == mine then
      local n = tonumber(string.match(record, '^:(%d+)', #mine) or 0)
      if (claim > 0 and left <= claim) or broken(string.sub(queue, 1, -2), n) then
        return {-6, n}
      end
      redis.call('DEL', marks) -- of absence: it is there
      if left < tonumber(ttl) then
        redis.call('PEXPIRE', lock, ttl)
        if owner then redis.call('PEXPIRE', own, ttl) end
      end
      return n
    end
    if left == -1 and mends == '1' then left = mend(value, math.max(tonumber(ttl), 10000)) end
  end
  if left ~= -2 or waiting > 0 then
    local ticket, e = 0, nil
    if claim > 0 then
      ticket, e = join(member, ARGV[7] or '0')
      if not ticket then return wrong(e, -4) end
    end
    if left ~= -2 then return {-1, left, value, ticket} end
    if pass() then
      local record = redis.call('GETRANGE', owner and own or lock, 0, 511)
      if string.sub(record, 1, #mine) == mine then
        return {-6, tonumber(string.match(record, '^:(%d+)', #mine) or 0)}
      end
      return {-1, redis.call('PTTL', lock), redis.call('GETRANGE', lock, 0, 511), ticket}
    end
    if redis.call('ZCARD', queue) > (ticket > 0 and 1 or 0) then return {-1, 0, '', ticket} end
    redis.call('ZREM', queue, member)
  end
end
local e
n, e = number(n)
if not n then return wrong(e, -4) end
if owner then
  redis.call('SET', lock, owner, 'PX', ttl)
  redis.call('SET', own, token .. string.format(':%.0f', n), 'PX', ttl)
else
  redis.call('SET', lock, token .. string.format(':%.0f:', n) .. ARGV[3], 'PX', ttl)
end
return n
