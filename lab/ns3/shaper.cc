// SPDX-License-Identifier: Apache-2.0
#include "shaper.h"

#include "ns3/simulator.h"

#include <algorithm>
#include <cmath>

using namespace ns3;

namespace dense
{

namespace
{

constexpr double FRAME = 1514; // bytes, what HTB charges for a full packet
constexpr double LINK_HEADER = 14;

double
Seconds()
{
    return Simulator::Now().GetSeconds();
}

} // namespace

/// The burst is that of package/wifirr-sched/src/htb.c: two packets, or 2 ms.
void
Shaper::Bucket::Set(double bytesPerSecond)
{
    tokens = Tokens(Seconds());
    at = Seconds();
    rate = bytesPerSecond;
    burst = std::max(2 * FRAME, rate / 500) / rate;
}

double
Shaper::Bucket::Tokens(double now) const
{
    return std::min(tokens + now - at, burst);
}

void
Shaper::Bucket::Charge(double now, uint32_t bytes)
{
    // HTB forgives debts of more than a minute (HTB_HYSTERESIS' mbuffer).
    tokens = std::max(Tokens(now) - bytes / rate, -60.);
    at = now;
}

Shaper::Shaper(unsigned classes, double linkBytesPerSecond, Leaf leaf)
    : m_classes(classes)
{
    m_link.Set(linkBytesPerSecond);
    for (auto& c : m_classes)
    {
        c.queue = leaf();
        c.queue->Initialize();
        c.rate.Set(linkBytesPerSecond);
        c.ceil.Set(linkBytesPerSecond);
    }
}

Shaper::~Shaper()
{
    m_event.Cancel();
    for (auto& c : m_classes)
    {
        c.queue->Dispose();
    }
}

void
Shaper::Set(unsigned id, double rate, double ceil)
{
    m_classes[id].rate.Set(rate);
    m_classes[id].ceil.Set(ceil);
    Run();
}

void
Shaper::SetLink(double bytesPerSecond)
{
    m_link.Set(bytesPerSecond);
    Run();
}

uint32_t
Shaper::Waiting(unsigned id) const
{
    return m_classes[id].queue->GetNBytes();
}

uint64_t
Shaper::Sent(unsigned id) const
{
    return m_classes[id].sent;
}

void
Shaper::Enqueue(unsigned id, Ptr<QueueDiscItem> item)
{
    m_classes[id].queue->Enqueue(item);
    Run();
}

/// Returns the class that may send now. If there is none, lowers wake to the time when one may.
Shaper::Class*
Shaper::Next(double now, bool borrowing, double& wake)
{
    for (unsigned i = 0; i < m_classes.size(); i++)
    {
        Class& c = m_classes[(m_turn + i) % m_classes.size()];
        if (c.queue->GetNPackets() == 0)
        {
            continue;
        }
        if (c.sleepUntil > now)
        {
            wake = std::min(wake, c.sleepUntil);
            continue;
        }
        if (!borrowing && c.rate.Tokens(now) < 0)
        {
            wake = std::min(wake, now - c.rate.Tokens(now));
            continue;
        }
        if (i > 0 || c.deficit <= 0)
        {
            m_turn = (m_turn + i) % m_classes.size();
            c.deficit = std::max(FRAME, std::min(c.ceil.rate / 1000, 60000.));
        }
        return &c;
    }
    return nullptr;
}

void
Shaper::Run()
{
    double now = Seconds();
    double wake;
    m_event.Cancel();
    for (;;)
    {
        wake = INFINITY;
        Class* c = Next(now, false, wake);
        if (!c && m_link.Tokens(now) >= 0)
        {
            c = Next(now, true, wake);
        }
        else if (!c)
        {
            wake = std::min(wake, now - m_link.Tokens(now));
        }
        if (!c)
        {
            break;
        }
        Ptr<QueueDiscItem> item = c->queue->Dequeue();
        if (!item)
        {
            continue; // CoDel dropped the remaining packets
        }
        uint32_t bytes = item->GetSize() + LINK_HEADER;
        c->deficit -= bytes;
        if (c->deficit <= 0)
        {
            m_turn = (m_turn + 1) % m_classes.size();
        }
        c->sent += bytes;
        c->rate.Charge(now, bytes);
        c->ceil.Charge(now, bytes);
        m_link.Charge(now, bytes);
        double tokens = c->ceil.Tokens(now);
        c->sleepUntil = tokens < 0 ? now - tokens : 0;
        send(item);
    }
    if (std::isfinite(wake))
    {
        m_event = Simulator::Schedule(NanoSeconds(std::ceil((wake - now) * 1e9) + 1), &Shaper::Run, this);
    }
}

} // namespace dense
