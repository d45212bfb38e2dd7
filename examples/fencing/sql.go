package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
)

// SQL writes settings to a table of a database. Another table contains the largest token of each election. The
// statements are for SQLite and PostgreSQL. PostgreSQL needs $1, $2 instead of question marks.
type SQL struct {
	db *sql.DB
	// election is the key of the token.
	election string
}

// NewSQL returns a store for the leader of one election. It creates the tables if they do not exist.
func NewSQL(ctx context.Context, db *sql.DB, election string) (*SQL, error) {
	for _, statement := range []string{
		`CREATE TABLE IF NOT EXISTS fence (election TEXT PRIMARY KEY, token BIGINT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL)`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("create the tables: %w", err)
		}
	}
	return &SQL{db: db, election: election}, nil
}

// Put writes a setting. The error wraps ErrStale if the token is outdated.
func (s *SQL) Put(ctx context.Context, token uint64, name, value string) error {
	return s.fenced(ctx, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO setting (name, value) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
		return err
	})
}

// Raise stores the token, so that writes of earlier terms are rejected. It writes no setting.
func (s *SQL) Raise(ctx context.Context, token uint64) error {
	return s.fenced(ctx, token, func(*sql.Tx) error { return nil })
}

// fenced executes write in the transaction that raises the token. The transaction locks the row of the token, so
// writes of two terms are executed one after the other.
func (s *SQL) fenced(ctx context.Context, token uint64, write func(*sql.Tx) error) (err error) {
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("token %d is invalid: use the token of TermFromContext", token)
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
		return fmt.Errorf("raise the token of %s: %w", s.election, err)
	}
	rows, err := raised.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 {
		return fmt.Errorf("%s, token %d: %w", s.election, token, ErrStale)
	}
	if err := write(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Get returns a setting, or "" if it does not exist.
func (s *SQL) Get(ctx context.Context, name string) (value string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT value FROM setting WHERE name = ?`, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}
