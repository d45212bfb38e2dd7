package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
)

// SQL is a table of settings in a database, fenced by a table of tokens. The statements are
// those of SQLite and PostgreSQL; the latter wants $1 for each question mark.
type SQL struct {
	db *sql.DB
	// election is which leader's writes these are: each has a token of its own.
	election string
}

// NewSQL makes the tables unless they are there.
func NewSQL(ctx context.Context, db *sql.DB, election string) (*SQL, error) {
	for _, statement := range []string{
		`CREATE TABLE IF NOT EXISTS fence (election TEXT PRIMARY KEY, token BIGINT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL)`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("making the tables: %w", err)
		}
	}
	return &SQL{db: db, election: election}, nil
}

// Put writes a setting, or fails with ErrStale.
func (s *SQL) Put(ctx context.Context, token uint64, name, value string) error {
	return s.fenced(ctx, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO setting (name, value) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
		return err
	})
}

// Raise refuses all earlier terms from now on, and writes nothing.
func (s *SQL) Raise(ctx context.Context, token uint64) error {
	return s.fenced(ctx, token, func(*sql.Tx) error { return nil })
}

// fenced does work in the transaction that raises the token. The row of the token is
// locked by that, so that a later term waits, or this one does and then finds itself stale.
func (s *SQL) fenced(ctx context.Context, token uint64, work func(*sql.Tx) error) (err error) {
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("the token %d is none: take it from TermFromContext", token)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	raised, err := tx.ExecContext(ctx, `INSERT INTO fence (election, token) VALUES (?, ?)
		ON CONFLICT (election) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token`, s.election, int64(token))
	if err != nil {
		return fmt.Errorf("raising the token of %s: %w", s.election, err)
	}
	rows, err := raised.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 {
		return fmt.Errorf("%s, token %d: %w", s.election, token, ErrStale)
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Get reads a setting; "" when there is none.
func (s *SQL) Get(ctx context.Context, name string) (value string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT value FROM setting WHERE name = ?`, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}
