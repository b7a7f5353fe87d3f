/* SPDX-License-Identifier: MIT
 * command.c - one command as it goes over the wire, put together argument by argument.
 */
#include "net/command.h"

#include <string.h>

#include "base/mem.h"

#define ROOM_MIN  512
#define HEAD_ROOM 96 /* "*N", EVALSHA, a SHA1 and how many keys */
#define NUMBER_SIZE 24
#define BYTES_MAX ((size_t)512 * 1024 * 1024)

/* Room for n more bytes behind, with some kept free in front. NULL: there is none, and
 * command_end() says why. */
static char *room(struct command *cmd, size_t n)
{
    if (cmd->short_of_memory || cmd->too_long)
        return NULL;
    size_t used = cmd->bytes ? cmd->begin + cmd->len : HEAD_ROOM;
    if (n > BYTES_MAX || used + n > BYTES_MAX) {
        cmd->too_long = true;
        return NULL;
    }
    if (used + n > cmd->size) {
        size_t size = cmd->size ? cmd->size : ROOM_MIN;
        while (size < used + n)
            size *= 2;
        char *grown = mem_resize(cmd->bytes, size);
        if (!grown) {
            cmd->short_of_memory = true;
            return NULL;
        }
        if (!cmd->bytes)
            cmd->begin = HEAD_ROOM;
        cmd->bytes = grown;
        cmd->size = size;
    }
    return cmd->bytes + cmd->begin + cmd->len;
}

/* Decimal digits, from the end of the buffer backwards; where they begin. */
static char *digits(uint64_t n, char *end)
{
    do {
        *--end = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    return end;
}

/* kind, the number, CR LF: how many bytes. */
static size_t put_count(char *p, char kind, size_t n)
{
    char text[NUMBER_SIZE], *end = text + sizeof text, *at = digits(n, end);
    size_t len = (size_t)(end - at);
    p[0] = kind;
    memcpy(p + 1, at, len);
    memcpy(p + 1 + len, "\r\n", 2);
    return len + 3;
}

/* "$len\r\narg\r\n": how many bytes. */
static size_t put_arg(char *p, const void *data, size_t len)
{
    size_t n = put_count(p, '$', len);
    if (len)
        memcpy(p + n, data, len);
    memcpy(p + n + len, "\r\n", 2);
    return n + len + 2;
}

/* How much put_arg() takes at the most; more than there is room for if len is too much. */
static size_t arg_size(size_t len)
{
    return len > BYTES_MAX ? BYTES_MAX + 1 : len + NUMBER_SIZE + 8;
}

void command_add(struct command *cmd, hf_bytes arg)
{
    char *p = room(cmd, arg_size(arg.len));
    if (!p)
        return;
    cmd->len += put_arg(p, arg.data, arg.len);
    cmd->args++;
}

void command_add_text(struct command *cmd, const char *text)
{
    command_add(cmd, hf_str(text));
}

void command_add_int(struct command *cmd, int64_t n)
{
    char text[NUMBER_SIZE], *end = text + sizeof text;
    char *at = digits(n < 0 ? 0 - (uint64_t)n : (uint64_t)n, end);
    if (n < 0)
        *--at = '-';
    command_add(cmd, (hf_bytes){ at, (size_t)(end - at) });
}

/* At least n bytes in front. */
static bool make_room_in_front(struct command *cmd, size_t n)
{
    if (!room(cmd, n > cmd->begin ? n : 0))
        return false;
    if (n > cmd->begin) {
        memmove(cmd->bytes + n, cmd->bytes + cmd->begin, cmd->len);
        cmd->begin = n;
    }
    return true;
}

void command_head(struct command *cmd, const hf_bytes *word, size_t words)
{
    size_t need = NUMBER_SIZE; /* for command_end() */
    for (size_t i = 0; i < words && need <= BYTES_MAX; i++)
        need += arg_size(word[i].len);
    if (!make_room_in_front(cmd, need))
        return;
    for (size_t i = words; i-- > 0;) {
        char text[NUMBER_SIZE + 8];
        size_t n = put_count(text, '$', word[i].len), whole = n + word[i].len + 2;
        cmd->begin -= whole;
        cmd->len += whole;
        put_arg(cmd->bytes + cmd->begin, word[i].data, word[i].len);
    }
    cmd->args += words;
}

hf_err command_end(struct command *cmd)
{
    char text[NUMBER_SIZE + 8];
    bool room_left = make_room_in_front(cmd, NUMBER_SIZE);
    hf_err e = cmd->short_of_memory ? HF_ENOMEM
               : !room_left || cmd->args == 0 || cmd->args > COMMAND_MAX_ARGS ? HF_EINVAL : HF_OK;
    if (e) {
        command_free(cmd);
        return e;
    }
    size_t n = put_count(text, '*', cmd->args);
    cmd->begin -= n;
    cmd->len += n;
    memcpy(cmd->bytes + cmd->begin, text, n);
    return HF_OK;
}

hf_err command_precede(struct command *cmd, const char *word)
{
    char text[64];
    size_t n = put_count(text, '*', 1);
    if (strlen(word) > 32)
        return HF_EINVAL;
    n += put_arg(text + n, word, strlen(word));
    if (!make_room_in_front(cmd, n))
        return HF_ENOMEM;
    cmd->begin -= n;
    cmd->len += n;
    memcpy(cmd->bytes + cmd->begin, text, n);
    return HF_OK;
}

void command_free(struct command *cmd)
{
    mem_free(cmd->bytes);
    *cmd = (struct command){ 0 };
}

hf_err command_make(struct command *cmd, int argc, const hf_bytes *argv)
{
    *cmd = (struct command){ 0 };
    for (int i = 0; i < argc; i++)
        command_add(cmd, argv[i]);
    return command_end(cmd);
}
