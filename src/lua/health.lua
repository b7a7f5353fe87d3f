-- SPDX-License-Identifier: MIT
-- health: would this server take a write now? Changes nothing.
-- KEYS 1 lock
-- Returns {1 it is a replica that takes none, 1 its maxmemory is used up, 1 it cannot write to its
--          disk, 1 too few replicas follow it; 0: not so, or nobody may say}
local function info(section)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and text or ''
end
local function number(text, name)
  return tonumber(string.match(text, '\n' .. name .. ':(%-?%d+)'))
end
local function flag(truth)
  return truth and 1 or 0
end
local repl, memory, disk = info('replication'), info('memory'), info('persistence')
local most, used = number(memory, 'maxmemory') or 0, number(memory, 'used_memory') or 0
used = used - (number(memory, 'mem_not_counted_for_evict') or 0)
return {
  flag(string.find(repl, '\nrole:slave', 1, true) and number(repl, 'slave_read_only') == 1),
  flag(most > 0 and used > most and string.find(memory, '\nmaxmemory_policy:noeviction', 1, true)),
  flag(string.find(disk, '\naof_last_write_status:err', 1, true)
    or string.find(disk, '\nrdb_last_bgsave_status:err', 1, true)),
  flag(number(repl, 'min_slaves_good_slaves') == 0),
}
