// SPDX-License-Identifier: Apache-2.0
// Linux's HTB with one class per client, or per group of clients, below one link.
#pragma once

#include "ns3/data-rate.h"
#include "ns3/event-id.h"
#include "ns3/nstime.h"
#include "ns3/queue-disc.h"

#include <deque>
#include <functional>

namespace dense
{

/// net/sched/sch_htb.c in two levels, as far as it matters here. A class may
/// overdraw by one packet and then sleeps until it has paid; a change of rate does
/// not wake it. Classes within their rate go before those that borrow, with
/// deficit round robin among equals.
class Shaper
{
  public:
    /// Creates the queue of a class.
    using Leaf = std::function<ns3::Ptr<ns3::QueueDisc>()>;

    Shaper(unsigned classes, double linkBytesPerSecond, Leaf leaf);
    ~Shaper();

    /// Called with each packet that may be sent.
    std::function<void(ns3::Ptr<ns3::QueueDiscItem>)> send;

    void Enqueue(unsigned id, ns3::Ptr<ns3::QueueDiscItem> item);
    /// Bytes per second.
    void Set(unsigned id, double rate, double ceil);
    /// Sets the rate of the link, which is lent to classes beyond their own rates; bytes per second.
    void SetLink(double bytesPerSecond);

    uint32_t Waiting(unsigned id) const; // bytes
    uint64_t Sent(unsigned id) const;    // bytes

  private:
    struct Bucket
    {
        double rate = 1;   // bytes/s
        double tokens = 0; // s
        double burst = 0;  // s
        double at = 0;     // when tokens was computed, s

        void Set(double bytesPerSecond);
        double Tokens(double now) const;
        void Charge(double now, uint32_t bytes);
    };

    struct Class
    {
        ns3::Ptr<ns3::QueueDisc> queue;
        Bucket rate, ceil;
        double sleepUntil = 0; // s
        double deficit = 0;    // bytes
        uint64_t sent = 0;
    };

    void Run();
    Class* Next(double now, bool borrowing, double& wake);

    std::deque<Class> m_classes;
    Bucket m_link;
    unsigned m_turn = 0;
    ns3::EventId m_event;
};

} // namespace dense
