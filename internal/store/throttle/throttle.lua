-- throttle counts login attempts. The count is exact, even if many attempts arrive at once.
--
-- An account's counters count the failures of strangers together. An origin that has logged in to
-- the account before is familiar: its failures are counted separately, on a budget of its own.
--
-- KEYS     hashes of counters: an account's, an origin's, or one of each
-- ARGV[1]  admit     counts an attempt, unless it has to wait
--          ask       returns what "admit" would return, but with 0 for at, and writes nothing
--          forgive   undoes an attempt that had the right password, and makes its origin familiar
--          withdraw  undoes an attempt that did not take place
--          reset     removes all failures and delays, but keeps familiar origins
--          look      reads one account and writes nothing
-- ARGV[2]  now in milliseconds, or "" for the server's clock
-- ARGV[3]  the origin's name in an account's counters, or ""
-- ARGV[4]  for "forgive" and "withdraw": "1" if the attempt was counted on its origin's own budget
-- ARGV[5..13]  the limits in throttle.go, times in milliseconds: Window, StrangerFree, StrangerMax,
--              FamiliarMax, FamiliarOrigins, FamiliarLife, OriginWindow, OriginFree, MaxDelay
-- ARGV[14]  a token of twelve characters that identifies the call
-- ARGV[15]  milliseconds since the call was first sent if it may have been carried out, else ""
-- ARGV[16..]   for each key: account | origin
--
-- Reply: {wait, own, at}: milliseconds to wait, 0 if the attempt is admitted; 1 if it was counted
-- on its origin's own budget; 1 if it was counted at its origin.
-- {-1}: the call was sent before, and it is unknown whether it was carried out; nothing was done.
-- {-2, n}: KEYS[n] does not hold counters; nothing was done.
--
-- The reply to "look" is {0, now, milliseconds that a stranger must wait, failures of strangers,
-- end of their window or 0}, followed for each familiar origin by the time of its last login and
-- its failures.
--
-- An account:  sn su sa   failures of strangers, end of their window, time of the next attempt
--              o:NAME     when that origin last logged in; n:NAME its failures
--              fu         end of the window of those failures
-- An origin:   sn su sa
-- Both:        k          the calls of the last minute, at most 64, newest first: token, 0 to 3
--                         (own + 2 at), seconds

local verb, name = ARGV[1], ARGV[3]
local limits = {}
for i = 5, 13 do limits[i - 4] = tonumber(ARGV[i]) end
local window, stranger_free, stranger_max, familiar_max, familiar_origins, familiar_life, origin_window, origin_free, max_delay = unpack(limits)
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end

local function num(h, field) return tonumber(h[field]) or 0 end
local function text(n) return string.format('%.0f', n) end
local function has_prefix(field, prefix) return string.sub(field, 1, 2) == prefix end

-- drop_expired removes what has expired. A time that is too far ahead was written when the clock
-- was wrong, and would otherwise keep people out until the clock reaches it.
local function drop_expired(h, kind)
  local function open(field, span) return num(h, field) > now and num(h, field) <= now + span end
  if not open('su', kind == 'origin' and origin_window or window) then h.sn, h.su, h.sa = nil, nil, nil end
  if not open('sa', max_delay) then h.sa = nil end
  if not open('fu', window) then h.fu = nil end
  for f, v in pairs(h) do
    if has_prefix(f, 'o:') and tonumber(v) + familiar_life <= now then h[f] = nil end
  end
  for f in pairs(h) do
    if has_prefix(f, 'n:') and not (h.fu and h['o:' .. string.sub(f, 3)]) then h[f] = nil end
  end
end

-- own reports whether the origin is familiar and its own budget is not used up.
local function own(h)
  return name ~= '' and h['o:' .. name] ~= nil and num(h, 'n:' .. name) < familiar_max
end

-- wait returns how many milliseconds an attempt has to wait.
local function wait(h, kind)
  if kind == 'account' and own(h) then return 0 end
  if kind == 'account' and num(h, 'sn') >= stranger_max then return num(h, 'su') - now end
  return math.max(num(h, 'sa') - now, 0)
end

-- count counts an attempt as a failure. A success is forgiven later.
local function count(h, kind)
  if kind == 'account' and own(h) then
    h['n:' .. name] = text(num(h, 'n:' .. name) + 1)
    h.fu = h.fu or text(now + window)
    return
  end
  local free, span = origin_free, origin_window
  if kind == 'account' then free, span = stranger_free, window end
  local n = num(h, 'sn') + 1
  h.sn, h.su = text(n), h.su or text(now + span)
  if n >= free then h.sa = text(now + math.min(1000 * 2 ^ math.min(n - free, 30), max_delay)) end
end

-- withdraw undoes an attempt. It also removes the delay after it. No earlier delay was in force,
-- because the attempt was admitted.
local function withdraw(h, kind)
  if kind == 'account' and ARGV[4] == '1' then
    h['n:' .. name] = text(math.max(num(h, 'n:' .. name) - 1, 0))
  else
    h.sn, h.sa = text(math.max(num(h, 'sn') - 1, 0)), nil
  end
end

-- remember makes the origin familiar. A new origin replaces the oldest if there are too many. One
-- with a time ahead of now counts as the oldest: the clock was wrong, and it would stay longest.
local function remember(h)
  h['o:' .. name], h['n:' .. name] = text(now), nil
  local n, oldest, first = 0, nil, nil
  for f, v in pairs(h) do
    if has_prefix(f, 'o:') then
      n = n + 1
      local at = tonumber(v) > now and 0 or tonumber(v)
      if f ~= 'o:' .. name and (not first or at < first or (at == first and f < oldest)) then oldest, first = f, at end
    end
  end
  if n > familiar_origins then h[oldest], h['n:' .. string.sub(oldest, 3)] = nil, nil end
end

-- forgive undoes an attempt that succeeded. A success without an origin clears the failures of
-- strangers.
local function forgive(h, kind)
  if kind == 'account' and name == '' then
    h.sn = nil
    return
  end
  withdraw(h, kind)
  if kind == 'account' then remember(h) end
end

local function reset(h)
  for f in pairs(h) do
    if not has_prefix(f, 'o:') and f ~= 'k' then h[f] = nil end
  end
end

-- A call that is sent again, because its reply was lost, gets the same answer and is not carried
-- out again.
local token, since, seconds = ARGV[14], tonumber(ARGV[15]), math.floor(now / 1000)
local call_size, max_calls, minute = 23, 64, 60
local function call_time(k, i) return tonumber(string.sub(k, i + 13, i + 22)) or 0 end
local function earlier_reply(h)
  local k = h.k or ''
  for i = 1, #k, call_size do
    if string.sub(k, i, i + 11) == token then
      local how = tonumber(string.sub(k, i + 12, i + 12))
      return {0, how % 2, math.floor(how / 2)}
    end
  end
  if #k == max_calls * call_size and call_time(k, 1 + #k - call_size) * 1000 > now - since - 2000 then return {-1} end
end
local function remember_call(h, how)
  local k, last = h.k or '', 0
  for i = 1, math.min(#k, (max_calls - 1) * call_size), call_size do
    if call_time(k, i) > seconds - minute then last = i + call_size - 1 end
  end
  h.k = token .. how .. string.format('%010d', seconds) .. string.sub(k, 1, last)
end

-- tidy removes windows without failures, of strangers and of familiar origins.
local function tidy(h)
  if num(h, 'sn') == 0 then h.sn, h.su, h.sa = nil, nil, nil end
  local any = false
  for f, v in pairs(h) do
    if has_prefix(f, 'n:') and v == '0' then h[f] = nil end
    any = any or has_prefix(f, 'n:') and v ~= '0'
  end
  if not any then h.fu = nil end
end

-- write stores the counters. A full server refuses the first command, and then nothing has changed.
local function write(key, h, was)
  tidy(h)
  local set, gone = {}, {}
  local last = math.max(num(h, 'su'), num(h, 'fu'))
  for f, v in pairs(h) do
    set[#set + 1], set[#set + 2] = f, v
    if has_prefix(f, 'o:') then last = math.max(last, tonumber(v) + familiar_life) end
  end
  redis.call('HSET', key, unpack(set))
  for _, f in ipairs(was) do
    if h[f] == nil then gone[#gone + 1] = f end
  end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
  -- Only the times inside the hash matter. The expiry merely cleans up.
  redis.call('PEXPIRE', key, text(math.max(last - now, 0) + minute * 1000))
end

-- is_valid reports whether the fields of a hash that the script uses are counters. Anything else in
-- them would end the script halfway.
local calls = string.rep('.', 12) .. string.rep('%d', 11)
local function is_valid(h)
  for f, v in pairs(h) do
    if f == 'k' then
      if #string.gsub(v, calls, '') > 0 then return false end
    elseif (#f == 2 or has_prefix(f, 'n:') or has_prefix(f, 'o:')) and not (#v <= 15 and string.find(v, '^%d+$')) then
      return false
    end
  end
  return true
end

local function look(h)
  local reply = {0, now, wait(h, 'account'), num(h, 'sn'), num(h, 'su')}
  for f, v in pairs(h) do
    if has_prefix(f, 'o:') then reply[#reply + 1], reply[#reply + 2] = tonumber(v), num(h, 'n:' .. string.sub(f, 3)) end
  end
  return reply
end

local hashes, fields, waits, kinds = {}, {}, {}, {}
local longest_wait, has_own = 0, false
for i, key in ipairs(KEYS) do
  local flat = redis.pcall('HGETALL', key)
  if flat.err and string.find(flat.err, 'WRONGTYPE') then return {-2, i} end
  if flat.err then return redis.error_reply(flat.err) end
  local h, was = {}, {}
  for j = 1, #flat, 2 do
    h[flat[j]] = flat[j + 1]
    was[#was + 1] = flat[j]
  end
  if not is_valid(h) then return {-2, i} end
  local answer = since and earlier_reply(h)
  if answer then return answer end
  drop_expired(h, ARGV[15 + i])
  hashes[i], fields[i], kinds[i] = h, was, ARGV[15 + i]
  waits[i] = wait(h, kinds[i])
  has_own = has_own or kinds[i] == 'account' and own(h)
  longest_wait = math.max(longest_wait, waits[i])
end
if verb == 'look' then return look(hashes[1]) end
if verb == 'ask' and has_own then return {0, 1, 0} end
if verb == 'ask' or verb == 'admit' and longest_wait > 0 and not has_own then return {longest_wait, 0, 0} end

local act = {admit = count, forgive = forgive, withdraw = withdraw, reset = reset}
local own_budget, at = has_own and 1 or 0, 0
-- A delay of the origin does not apply to an attempt on the origin's own budget. While the delay
-- lasts, the counters of the origin do not count such an attempt.
local function due(i) return verb ~= 'admit' or waits[i] == 0 end
for i in ipairs(KEYS) do
  if due(i) and kinds[i] == 'origin' then at = 1 end
end
for i, key in ipairs(KEYS) do
  if due(i) then
    act[verb](hashes[i], kinds[i])
    remember_call(hashes[i], own_budget + 2 * at)
    write(key, hashes[i], fields[i])
  end
end
return {0, own_budget, at}
