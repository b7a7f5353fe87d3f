/* SPDX-License-Identifier: MIT
 * slot.c - which of a cluster's 16384 slots a key lies in.
 */
#include "topo/slot.h"

#include <stdint.h>
#include <string.h>

/* CRC16 with the polynomial 0x1021 from 0, as the cluster's specification has it; four bits at a
 * time. */
static unsigned crc16(const unsigned char *p, size_t len)
{
    static const uint16_t of[16] = {
        0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
        0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
    };
    unsigned crc = 0;
    for (size_t i = 0; i < len; i++) {
        crc = (crc << 4 & 0xffff) ^ of[crc >> 12 ^ p[i] >> 4];
        crc = (crc << 4 & 0xffff) ^ of[crc >> 12 ^ (p[i] & 15)];
    }
    return crc;
}

int slot_tag(const void *key, size_t len, size_t *ret_begin, size_t *ret_end)
{
    const char *k = key, *open = memchr(k, '{', len);
    if (!open)
        return 0;
    const char *close = memchr(open, '}', len - (size_t)(open - k));
    if (!close || close == open + 1)
        return 0;
    *ret_begin = (size_t)(open - k) + 1;
    *ret_end = (size_t)(close - k);
    return 1;
}

unsigned slot_of(const void *key, size_t len)
{
    size_t begin = 0, end = len;
    slot_tag(key, len, &begin, &end);
    return crc16((const unsigned char *)key + begin, end - begin) % SLOT_COUNT;
}

/* The n-th text, and the slot that it lies in. */
static unsigned nth_text(uint32_t n, char ret[SLOT_TEXT_SIZE])
{
    static const char digit[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    size_t len = 0;
    do {
        ret[len++] = digit[n % 36];
        n /= 36;
    } while (n && len < SLOT_TEXT_SIZE - 1);
    ret[len] = '\0';
    return crc16((const unsigned char *)ret, len) % SLOT_COUNT;
}

void slot_text(unsigned slot, char ret[SLOT_TEXT_SIZE])
{
    uint32_t n = 0; /* about 16384 tries; every slot has one of up to four digits */
    while (nth_text(n, ret) != slot)
        n++;
}

void slot_texts(char (*ret)[SLOT_TEXT_SIZE])
{
    char text[SLOT_TEXT_SIZE];
    memset(ret, 0, (size_t)SLOT_COUNT * SLOT_TEXT_SIZE);
    for (uint32_t n = 0, left = SLOT_COUNT; left; n++) {
        unsigned slot = nth_text(n, text);
        if (*ret[slot])
            continue;
        memcpy(ret[slot], text, sizeof text);
        left--;
    }
}
