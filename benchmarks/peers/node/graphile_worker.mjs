// graphile-worker with a task that does nothing.
//
// Settings, from its page on performance: concurrentJobs 24, localQueue of 500, completeJobBatchDelay 0 and
// failJobBatchDelay 0, which fetch and complete jobs in batches; `add_jobs` for thousands. A finished job is
// deleted. Where calls take time: twenty at once and no local queue, as a killed worker's jobs stay locked for
// four hours.
import { run, runMigrations } from 'graphile-worker'
import { Logger } from '@graphile/logger'
import pg from 'pg'
import { Peer, chunks, main, payload } from './protocol.mjs'

const ONE = "SELECT graphile_worker.add_job('email', $1::json)"
const MANY = `
  SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT json_populate_record(NULL::graphile_worker.job_spec,
                                json_build_object('identifier', 'email', 'payload', e))
    FROM json_array_elements($1::json) e))`
const FUTURE = `
  SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT json_populate_record(NULL::graphile_worker.job_spec, json_build_object(
      'identifier', 'email', 'payload', json_build_object('number', 0), 'run_at', now() + interval '1 day'))
    FROM generate_series(1, $1::int)))`
const LEFT = 'SELECT count(*)::int AS count FROM graphile_worker._private_jobs WHERE run_at <= now()'
const FAST = {
  concurrentJobs: 24, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0
}
const logger = new Logger(() => () => {})

class GraphileWorker extends Peer {
  pool = new pg.Pool({ connectionString: this.url, max: 2 }).on('error', () => {})

  setup () { return runMigrations({ connectionString: this.url, logger }) }

  async fill (first, count) {
    for (const numbers of chunks(first, count)) {
      await this.pool.query(MANY, [JSON.stringify(numbers.map(payload))])
    }
  }

  enqueue (number) { return this.pool.query({ name: 'one', text: ONE, values: [payload(number)] }) }

  async grow (_sent, future) {
    for (let left = future; left > 0; left -= 50000) await this.pool.query(FUTURE, [Math.min(left, 50000)])
    await this.pool.query('VACUUM ANALYZE graphile_worker._private_jobs')
  }

  async left () { return (await this.pool.query(LEFT)).rows[0].count }

  async work () {
    this.runner = await run({
      preset: {
        worker: {
          connectionString: this.url,
          pollInterval: 1000,
          maxPoolSize: 25,
          ...(this.delay ? { concurrentJobs: 20 } : FAST)
        }
      },
      logger,
      noHandleSignals: true,
      taskList: { email: ({ number }) => this.handle(number) }
    })
    this.runner.promise.catch(() => {})
  }

  stop () { return this.runner.stop() }
}

await main(GraphileWorker)
