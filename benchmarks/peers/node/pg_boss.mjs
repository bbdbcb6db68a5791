// pg-boss with a handler that does nothing.
//
// Settings, from its docs: api/workers: batchSize 500 and burstWhenBatchFull, so that a worker fetches again
// at once while batches are full; notify, so that LISTEN/NOTIFY wakes it; pollingIntervalSeconds 0.5, the
// least. api/queues: a partition of its own. api/jobs: orderByCreatedOn false where order does not matter.
// `insert` for thousands. A finished job stays in its table until it is deleted.
import { PgBoss } from 'pg-boss'
import pg from 'pg'
import { Peer, chunks, main, payload } from './protocol.mjs'

const QUEUE = 'email'
const GROW = `
  INSERT INTO pgboss.job (name, data, state, start_after, completed_on, keep_until)
  SELECT 'email', '{"number": 0}', $1::pgboss.job_state, now() + $2::interval,
         CASE WHEN $1 = 'completed' THEN now() END, now() + interval '14 days'
  FROM generate_series(1, $3::int)`
const LEFT = `
  SELECT count(*)::int AS count FROM pgboss.job
  WHERE name = 'email' AND state < 'completed' AND start_after <= now()`

class Boss extends Peer {
  pool = new pg.Pool({ connectionString: this.url, max: 1 }).on('error', () => {})
  boss = null

  async open (options = { supervise: false, schedule: false }) {
    if (this.boss) return
    this.boss = new PgBoss({ connectionString: this.url, useListenNotify: true, ...options })
    this.boss.on('error', () => {})
    await this.boss.start()
  }

  async setup () {
    await this.open()
    await this.boss.createQueue(QUEUE, {
      partition: true, notify: true, expireInSeconds: 900, heartbeatSeconds: 10
    })
  }

  async fill (first, count) {
    await this.open()
    for (const numbers of chunks(first, count)) {
      await this.boss.insert(QUEUE, numbers.map(number => ({ data: payload(number) })))
    }
  }

  async enqueue (number) {
    await this.open()
    await this.boss.send(QUEUE, payload(number))
  }

  async grow (sent, future) {
    await this.pool.query(GROW, ['completed', '-1 day', sent])
    await this.pool.query(GROW, ['created', '1 day', future])
    await this.pool.query('ANALYZE pgboss.job')
  }

  async left () { return (await this.pool.query(LEFT)).rows[0].count }

  async work () {
    // A dead worker is noticed when its heartbeats (10 s, the least) and the monitor's interval are over.
    await this.open(this.delay ? { superviseIntervalSeconds: 1, monitorIntervalSeconds: 1 } : {})
    const options = {
      batchSize: this.delay ? 20 : 500,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
      orderByCreatedOn: false
    }
    await this.boss.work(QUEUE, options, jobs => Promise.all(jobs.map(job => this.handle(job.data.number))))
  }

  stop () { return this.boss.offWork(QUEUE, { wait: true }) }
}

await main(Boss)
