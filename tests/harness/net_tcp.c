/* SPDX-License-Identifier: MIT
 * net_tcp.c - packets of TCP over IPv4, as a switch that does harm sees them.
 */
#include "harness/net_tcp.h"

#include <stdint.h>
#include <string.h>

/* Where things are, in bytes: IPv4 first, TCP from the end of that. */
enum {
    IP_LEN = 2, IP_TTL = 8, IP_PROTOCOL = 9, IP_SUM = 10, IP_FROM = 12, IP_TO = 16, IP_MIN = 20,
    TCP_FROM = 0, TCP_TO = 2, TCP_SEQ = 4, TCP_ACK = 8, TCP_OFFSET = 12, TCP_FLAGS = 13,
    TCP_SUM = 16, TCP_MIN = 20,
    PROTOCOL_TCP = 6, FLAG_RST = 4, FLAG_ACK = 16,
};

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(unsigned char *p, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(n >> (24 - 8 * i));
}

static void put16(unsigned char *p, size_t n)
{
    p[0] = (unsigned char)(n >> 8);
    p[1] = (unsigned char)n;
}

static size_t ip_header(const unsigned char *packet)
{
    return (size_t)(packet[0] & 15) * 4;
}

static size_t tcp_header(const unsigned char *tcp)
{
    return (size_t)(tcp[TCP_OFFSET] >> 4) * 4;
}

static uint32_t sum_of(const unsigned char *p, size_t len, uint32_t sum)
{
    for (size_t i = 0; i < len; i++)
        sum += (uint32_t)p[i] << (i % 2 ? 0 : 8);
    return sum;
}

static void put_sum(unsigned char *p, uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    put16(p, ~sum & 0xffff);
}

static void put_sums(unsigned char *packet, size_t len)
{
    size_t ip = ip_header(packet);
    unsigned char *tcp = packet + ip;
    put16(packet + IP_LEN, len);
    put16(packet + IP_SUM, 0);
    put_sum(packet + IP_SUM, sum_of(packet, ip, 0));
    put16(tcp + TCP_SUM, 0);
    uint32_t sum = sum_of(packet + IP_FROM, 8, PROTOCOL_TCP + (uint32_t)(len - ip));
    put_sum(tcp + TCP_SUM, sum_of(tcp, len - ip, sum));
}

size_t tcp_payload(const unsigned char *packet, size_t len)
{
    if (len < IP_MIN + TCP_MIN || packet[0] >> 4 != 4 || packet[IP_PROTOCOL] != PROTOCOL_TCP)
        return 0;
    size_t ip = ip_header(packet);
    if (ip < IP_MIN || len < ip + TCP_MIN)
        return 0;
    size_t headers = ip + tcp_header(packet + ip);
    return len > headers ? len - headers : 0;
}

size_t tcp_shorten(unsigned char *packet, size_t len, size_t payload)
{
    len -= tcp_payload(packet, len) - payload;
    put_sums(packet, len);
    return len;
}

void tcp_reset(const unsigned char *packet, size_t len, int back, unsigned char ret[TCP_RESET_LEN])
{
    const unsigned char *old = packet + ip_header(packet);
    unsigned char *tcp = ret + IP_MIN;
    memset(ret, 0, TCP_RESET_LEN);
    ret[0] = 4 << 4 | IP_MIN / 4;
    ret[IP_TTL] = 64;
    ret[IP_PROTOCOL] = PROTOCOL_TCP;
    memcpy(ret + IP_FROM, packet + (back ? IP_TO : IP_FROM), 4);
    memcpy(ret + IP_TO, packet + (back ? IP_FROM : IP_TO), 4);
    memcpy(tcp + TCP_FROM, old + (back ? TCP_TO : TCP_FROM), 2);
    memcpy(tcp + TCP_TO, old + (back ? TCP_FROM : TCP_TO), 2);
    uint32_t next = get32(old + TCP_SEQ) + (uint32_t)tcp_payload(packet, len);
    uint32_t heard = get32(old + TCP_ACK);
    put32(tcp + TCP_SEQ, back ? heard : next);
    put32(tcp + TCP_ACK, back ? next : heard);
    tcp[TCP_OFFSET] = TCP_MIN / 4 << 4;
    tcp[TCP_FLAGS] = FLAG_RST | FLAG_ACK;
    put_sums(ret, TCP_RESET_LEN);
}
