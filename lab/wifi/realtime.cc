// SPDX-License-Identifier: Apache-2.0
#include "realtime.h"

#include "ns3/nstime.h"
#include "ns3/object-factory.h"
#include "ns3/simulator.h"

#include <algorithm>
#include <limits>
#include <time.h>

using namespace ns3;

namespace medium
{

NS_OBJECT_ENSURE_REGISTERED(RealtimeSimulator);

namespace
{
// How early an event may run: a shorter sleep costs more than it saves.
constexpr uint64_t AHEAD_NS = 20'000;
// Descriptors are read at least this often while events keep the loop busy.
constexpr uint64_t POLL_EVERY_NS = 20'000;
constexpr uint64_t LONGEST_SLEEP_NS = 1'000'000'000;
} // namespace

TypeId
RealtimeSimulator::GetTypeId()
{
    static TypeId tid = TypeId("medium::RealtimeSimulator")
                            .SetParent<SimulatorImpl>()
                            .AddConstructor<RealtimeSimulator>();
    return tid;
}

RealtimeSimulator::RealtimeSimulator()
    : m_uid(EventId::INVALID),
      m_nextUid(EventId::VALID),
      m_context(Simulator::NO_CONTEXT)
{
}

RealtimeSimulator&
RealtimeSimulator::Get()
{
    return *DynamicCast<RealtimeSimulator>(Simulator::GetImplementation());
}

void
RealtimeSimulator::Watch(int fd, std::function<void()> onReadable)
{
    m_polled.push_back({fd, POLLIN, 0});
    m_onReadable.push_back(std::move(onReadable));
}

void
RealtimeSimulator::Unwatch(int fd)
{
    for (auto& p : m_polled)
    {
        if (p.fd == fd)
        {
            p.fd = -1; // poll ignores it; the entry stays, because a loop over the entries may be running
        }
    }
}

void
RealtimeSimulator::ScheduleArrival(uint32_t context, EventImpl* event)
{
    Insert(context, std::max(m_now, RealNow()), event);
}

int64_t
RealtimeSimulator::Lag() const
{
    return static_cast<int64_t>(RealNow()) - static_cast<int64_t>(m_now);
}

uint64_t
RealtimeSimulator::RealNow() const
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000ULL + t.tv_nsec - m_origin;
}

EventId
RealtimeSimulator::Insert(uint32_t context, uint64_t ts, EventImpl* event)
{
    Scheduler::Event e;
    e.impl = event;
    e.key.m_ts = ts;
    e.key.m_uid = m_nextUid++;
    e.key.m_context = context;
    m_events->Insert(e);
    return EventId(event, ts, context, e.key.m_uid);
}

void
RealtimeSimulator::ExecuteNext()
{
    Scheduler::Event next = m_events->RemoveNext();
    m_now = next.key.m_ts;
    m_uid = next.key.m_uid;
    m_context = next.key.m_context;
    m_executed++;
    next.impl->Invoke();
    next.impl->Unref();
}

void
RealtimeSimulator::PollDescriptors(uint64_t timeoutNs)
{
    timespec timeout{static_cast<time_t>(timeoutNs / 1'000'000'000),
                     static_cast<long>(timeoutNs % 1'000'000'000)};
    if (ppoll(m_polled.data(), m_polled.size(), &timeout, nullptr) <= 0)
    {
        return;
    }
    for (size_t i = 0; i < m_polled.size(); i++)
    {
        if (m_polled[i].fd >= 0 && m_polled[i].revents != 0)
        {
            m_onReadable[i]();
        }
    }
}

void
RealtimeSimulator::Run()
{
    m_stop = false;
    m_origin = 0;
    m_origin = RealNow() - m_now;
    uint64_t polled = 0;
    while (!m_stop)
    {
        uint64_t real = RealNow();
        uint64_t due = m_events->IsEmpty() ? std::numeric_limits<uint64_t>::max()
                                           : m_events->PeekNext().key.m_ts;
        if (due > real + AHEAD_NS)
        {
            PollDescriptors(std::min(due - real, LONGEST_SLEEP_NS));
            polled = RealNow();
            continue;
        }
        if (real > polled + POLL_EVERY_NS)
        {
            PollDescriptors(0);
            polled = real;
        }
        ExecuteNext();
    }
}

void
RealtimeSimulator::Destroy()
{
    while (!m_atDestroy.empty())
    {
        Ptr<EventImpl> event = m_atDestroy.front().PeekEventImpl();
        m_atDestroy.pop_front();
        if (!event->IsCancelled())
        {
            event->Invoke();
        }
    }
    while (!m_events->IsEmpty())
    {
        m_events->RemoveNext().impl->Unref();
    }
}

bool
RealtimeSimulator::IsFinished() const
{
    return m_stop || m_events->IsEmpty();
}

void
RealtimeSimulator::Stop()
{
    m_stop = true;
}

void
RealtimeSimulator::Stop(const Time& delay)
{
    Simulator::Schedule(delay, &Simulator::Stop);
}

EventId
RealtimeSimulator::Schedule(const Time& delay, EventImpl* event)
{
    return Insert(m_context, m_now + delay.GetTimeStep(), event);
}

void
RealtimeSimulator::ScheduleWithContext(uint32_t context, const Time& delay, EventImpl* event)
{
    Insert(context, m_now + delay.GetTimeStep(), event);
}

EventId
RealtimeSimulator::ScheduleNow(EventImpl* event)
{
    return Insert(m_context, m_now, event);
}

EventId
RealtimeSimulator::ScheduleDestroy(EventImpl* event)
{
    m_atDestroy.emplace_back(Ptr<EventImpl>(event, false), m_now, 0xffffffff, EventId::DESTROY);
    return m_atDestroy.back();
}

void
RealtimeSimulator::Remove(const EventId& id)
{
    if (id.GetUid() == EventId::DESTROY)
    {
        m_atDestroy.remove(id);
        return;
    }
    if (IsExpired(id))
    {
        return;
    }
    Scheduler::Event e;
    e.impl = id.PeekEventImpl();
    e.key.m_ts = id.GetTs();
    e.key.m_uid = id.GetUid();
    e.key.m_context = id.GetContext();
    m_events->Remove(e);
    e.impl->Cancel();
    e.impl->Unref(); // the queue's reference
}

void
RealtimeSimulator::Cancel(const EventId& id)
{
    if (!IsExpired(id))
    {
        id.PeekEventImpl()->Cancel();
    }
}

bool
RealtimeSimulator::IsExpired(const EventId& id) const
{
    if (id.PeekEventImpl() == nullptr || id.PeekEventImpl()->IsCancelled())
    {
        return true;
    }
    if (id.GetUid() == EventId::DESTROY)
    {
        return std::find(m_atDestroy.begin(), m_atDestroy.end(), id) == m_atDestroy.end();
    }
    return id.GetTs() < m_now || (id.GetTs() == m_now && id.GetUid() <= m_uid);
}

Time
RealtimeSimulator::Now() const
{
    return TimeStep(m_now);
}

Time
RealtimeSimulator::GetDelayLeft(const EventId& id) const
{
    return IsExpired(id) ? TimeStep(0) : TimeStep(id.GetTs() - m_now);
}

Time
RealtimeSimulator::GetMaximumSimulationTime() const
{
    return TimeStep(std::numeric_limits<int64_t>::max());
}

void
RealtimeSimulator::SetScheduler(ObjectFactory factory)
{
    Ptr<Scheduler> events = factory.Create<Scheduler>();
    while (m_events && !m_events->IsEmpty())
    {
        events->Insert(m_events->RemoveNext());
    }
    m_events = events;
}

uint32_t
RealtimeSimulator::GetSystemId() const
{
    return 0;
}

uint32_t
RealtimeSimulator::GetContext() const
{
    return m_context;
}

uint64_t
RealtimeSimulator::GetEventCount() const
{
    return m_executed;
}

} // namespace medium
