-- Write what a gateway holds of limits, and grant what it wants, as far as that is free (`QuotaStore.share_quota`).
--
-- KEYS: what all keys begin with. ARGV: gateway, identity of the call, turn, the epoch that the gateway knows, the seconds
-- after which a gateway is gone and after which it is forgotten; then eight for each request, in the order of `ShareRequest`.
--
--   life            run, epoch, began_s and lost: since when this server counts, and whether it may have lost shares;
--                   numbers: how many gateways have had a number
--   gateways        by gateway, packed: number, turn, identity, seen_s, alive_s, touched_s
--   limit:NAME      one row after the other, packed: number of the gateway, share, used, needed, base, lapse_s
--   of:GATEWAY      the names of the limits in which it has a row
--   lacking         the names of the limits of which a gateway lacks some
--   answer:GATEWAY  the answer to its latest call
--
-- All but `life` expire. Rows are packed, as each call reads those of all gateways: to split texts takes six times as
-- long. The figures are doubles: those above 2^53, a budget of nine millions, are rounded.

local prefix, gateway, identity, turn, known = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local gone_s, forgotten_s = tonumber(ARGV[5]), tonumber(ARGV[6])
local REQUESTS, FIGURES, COLUMNS = 7, 8, 6
local NUMBER, TURN, IDENTITY, SEEN_S, ALIVE_S, TOUCHED_S = 1, 2, 3, 4, 5, 6
local kept_s = 2 * forgotten_s
local clock = redis.call('TIME')
local now_s = tonumber(clock[1]) + tonumber(clock[2]) / 1e6

local function read_packed(name)
    local text = redis.call('GET', prefix .. name)
    return text and cmsgpack.unpack(text) or {}
end

local function write_packed(name, value)
    redis.call('SET', prefix .. name, cmsgpack.pack(value), 'EX', kept_s)
end

local gateways = read_packed('gateways')
local own = gateways[gateway]
if own and own[IDENTITY] == identity then
    return redis.call('GET', prefix .. 'answer:' .. gateway)
end
if own and own[TURN] >= turn then
    return redis.error_reply('STALE this call about shares of limits comes after a later one')
end

-- A server that was started again may have lost what it was told last, or all of it.
local function find_life()
    local key = prefix .. 'life'
    local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
    local life = redis.call('HMGET', key, 'run', 'epoch', 'began_s', 'lost')
    local epoch, began_s, lost = life[2], tonumber(life[3] or 0), life[4] == '1'
    local is_new = life[1] ~= run
    if is_new then
        epoch, began_s, lost = identity, now_s, life[1] ~= false
    end
    local holds = false
    for at = REQUESTS, #ARGV, FIGURES do holds = holds or tonumber(ARGV[at + 3]) > 0 end
    local survived = known ~= '' and known ~= epoch or holds and not own
    if is_new or survived and not lost then
        lost = lost or survived
        redis.call('HSET', key, 'run', run, 'epoch', epoch, 'began_s', string.format('%.6f', began_s),
            'lost', lost and '1' or '0')
    end
    return epoch, began_s, lost
end

local epoch, began_s, lost = find_life()

local function forget_gateway(name, number)
    for _, limit in ipairs(redis.call('SMEMBERS', prefix .. 'of:' .. name)) do
        local rows, left = read_packed('limit:' .. limit), {}
        for at = 1, #rows, COLUMNS do
            if rows[at] ~= number then
                for column = at, at + COLUMNS - 1 do left[#left + 1] = rows[column] end
            end
        end
        write_packed('limit:' .. limit, left)
    end
    redis.call('DEL', prefix .. 'of:' .. name)
    gateways[name] = nil
end

-- After a time without any call, no gateway is gone: the server itself may have been away.
local latest_s = nil
for _, row in pairs(gateways) do latest_s = math.max(latest_s or 0, row[SEEN_S]) end
local was_away = latest_s ~= nil and now_s - latest_s > gone_s / 2
local gateway_count, by_number = 1, {}
for name, row in pairs(gateways) do
    if name ~= gateway and row[SEEN_S] < now_s - forgotten_s then
        forget_gateway(name, row[NUMBER])
    else
        row[ALIVE_S] = was_away and math.max(row[ALIVE_S], now_s + gone_s) or row[ALIVE_S]
        by_number[row[NUMBER]] = row
        if name ~= gateway and row[ALIVE_S] >= now_s then gateway_count = gateway_count + 1 end
    end
end

own = own or {redis.call('HINCRBY', prefix .. 'life', 'numbers', 1), turn, identity, now_s, now_s, 0}
own[TURN], own[IDENTITY], own[SEEN_S], own[ALIVE_S] = turn, identity, now_s, now_s + gone_s
if now_s - own[TOUCHED_S] > forgotten_s / 4 then
    own[TOUCHED_S] = now_s
    for _, name in ipairs(redis.call('SMEMBERS', prefix .. 'of:' .. gateway)) do
        redis.call('EXPIRE', prefix .. 'limit:' .. name, kept_s)
    end
    redis.call('EXPIRE', prefix .. 'of:' .. gateway, kept_s)
    redis.call('EXPIRE', prefix .. 'lacking', kept_s)
end
gateways[gateway] = own
write_packed('gateways', gateways)

-- The sums of the other gateways' rows of a limit, and where rows stand that count no longer: also the own one, which
-- is written anew.
local function sum_others(rows)
    local shares, used, base, lacking, lacked, over = 0, 0, 0, false, false, {}
    for at = 1, #rows, COLUMNS do
        local other, lapse_s = by_number[rows[at]], rows[at + 5]
        local is_other = other and rows[at] ~= own[NUMBER]
        if is_other and now_s <= (lapse_s == 0 and other[ALIVE_S] or other[SEEN_S] + gone_s + lapse_s) then
            shares, used = shares + rows[at + 1], used + rows[at + 2]
            if rows[at + 4] > base then base = rows[at + 4] end
        elseif not is_other or lapse_s > 0 then
            over[#over + 1] = at
            is_other = false
        end
        if is_other and rows[at + 3] > rows[at + 1] then
            lacking = true
            lacked = lacked or other[ALIVE_S] >= now_s
        end
    end
    return {shares = shares, used = used, base = base, is_lacking = lacking, is_lacked = lacked, over = over}
end

-- Put a row in the place of the first of those that are over, and the last rows in the places of the others.
local function replace_rows(rows, over, row)
    if row then
        local place = table.remove(over, 1) or #rows + 1
        for column = 1, COLUMNS do rows[place + column - 1] = row[column] end
    end
    for at = #over, 1, -1 do
        local last = #rows - COLUMNS
        for column = COLUMNS, 1, -1 do
            rows[over[at] + column - 1] = rows[last + column]
            rows[last + column] = nil
        end
    end
end

local function grant(name, limit, base, held, used, wanted, needed, lapse_s)
    local rows, of = read_packed('limit:' .. name), prefix .. 'of:' .. gateway
    local others = sum_others(rows)
    local room = limit - math.max(base, others.base) - others.shares
    local share = math.max(held, math.min(wanted, room))
    local free, elsewhere, spare = room - share, others.used, others.shares - others.used
    if now_s < began_s + gone_s + (lost and lapse_s or 0) and free + share > held then
        -- Not all gateways have reported what they hold, so the rest counts as used.
        share, free, elsewhere, spare = held, 0, limit - math.max(base, others.base) - held, 0
    end
    local is_kept = share > 0 or needed > 0 or base > 0
    replace_rows(rows, others.over, is_kept and {own[NUMBER], share, used, needed, base, lapse_s})
    if is_kept then
        redis.call('SADD', of, name)
        redis.call('EXPIRE', of, kept_s)
    else
        redis.call('SREM', of, name)
    end
    if #rows > 0 then
        write_packed('limit:' .. name, rows)
    else
        redis.call('DEL', prefix .. 'limit:' .. name)
    end
    if others.is_lacking or needed > share then
        redis.call('SADD', prefix .. 'lacking', name)
        redis.call('EXPIRE', prefix .. 'lacking', kept_s)
    else
        redis.call('SREM', prefix .. 'lacking', name)
    end
    return {share, free, elsewhere, spare}
end

local grants = {}
for at = REQUESTS, #ARGV, FIGURES do
    local figures = {}
    for offset = 1, FIGURES - 1 do figures[offset] = tonumber(ARGV[at + offset]) end
    grants[#grants + 1] = grant(ARGV[at], unpack(figures))
end
local lacking = {}
for _, name in ipairs(redis.call('SINTER', prefix .. 'lacking', prefix .. 'of:' .. gateway)) do
    if sum_others(read_packed('limit:' .. name)).is_lacked then lacking[#lacking + 1] = name end
end
local unsettled_s = math.max(began_s + gone_s - now_s, 0)
local answer = cmsgpack.pack({epoch, unsettled_s, gateway_count, grants, lacking})
redis.call('SET', prefix .. 'answer:' .. gateway, answer, 'EX', kept_s)
return answer
